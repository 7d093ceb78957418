"""Programs for the developers of this project; they are not installed.

``bench`` measures a cluster, ``demo`` shows one, ``completion`` and ``field_list`` generate files
from the tables of the programs. The other files are programs which make and CI run, and image
builders.
"""
