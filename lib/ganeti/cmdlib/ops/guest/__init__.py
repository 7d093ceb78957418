"""Parts of the operations on running guests.

=========== ==============================================
``console`` how a user reaches the console
``helper``  helper guests: start, wait, evaluate, clean up
``power``   starts and stops instances
``removal`` removes an instance and its disks
=========== ==============================================
"""
