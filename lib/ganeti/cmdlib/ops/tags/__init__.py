"""Parts of the operations on tags.

=========== =============================================
``objects`` finds and changes the objects which have tags
``unit``    base of the units which add and remove tags
=========== =============================================
"""
