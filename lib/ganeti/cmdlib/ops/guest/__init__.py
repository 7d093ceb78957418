"""Parts of the operations on running guests.

=========== ==============================================
``console`` how a user reaches the console
``helper``  helper guests: start, wait, evaluate, clean up
``hotplug`` changes the devices of a running guest
``power``   starts and stops instances
``removal`` removes an instance and its disks
=========== ==============================================
"""
