"""Operations of several resumable steps: what takeover, upgrade and merge of clusters share.

Such an operation changes many machines, may be interrupted at any moment, and goes on with the same
command. It keeps a record of what is complete in a file; a step may run twice, because an
interruption can come between its end and the record of it.

- ``record``: the record in its file
- ``steps``: the table of steps, the loop that carries them out, the failure of a step
- ``commands``: run a program of the cluster, and fail with what it said
- ``quiet``: bring a cluster to rest before it is changed, and compare it afterwards
"""
