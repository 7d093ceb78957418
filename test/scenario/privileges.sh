# Run by test_privileges.py in namespaces of its own: a machine with the published paths, where the
# master daemon and the query daemon have users of their own. Arguments: project, scratch directory,
# prefix of the Python installation that the virtual environment uses, virtual environment.
set -eu
project=$1 scratch=$2 python=$3 venv=$4
cp -a /etc "$scratch/etc" && mount --bind "$scratch/etc" /etc
mkdir "$scratch/places"
. "$project/test/scenario/for_others.sh"
for_others "$scratch/places" "$project" "$python" "$venv"
# What an installed Ganeti has brought: its users and groups, settings, hooks and scripts.
for file in passwd shadow group gshadow; do
    [ ! -e "/etc/$file" ] || sed -i '/^gnt-/d; /^operator1:/d; /^stranger:/d' "/etc/$file"
done
rm -rf /etc/ganeti
printf '%s: files\n' passwd shadow group gshadow hosts >/etc/nsswitch.conf
for directory in /var/lib /var/log /run /srv; do
    mount -t tmpfs -o mode=755 none "$directory"
done
mkdir /run/lock
hostname node1.example.com
ip link set lo up
ip address add 192.0.2.10/32 dev lo
printf '%s\n' '127.0.0.1 localhost' '192.0.2.10 node1.example.com node1' \
    '192.0.2.250 cluster.example.com' >/etc/hosts
for name in gnt-masterd gnt-confd gnt-rapi gnt-daemons; do groupadd "$name"; done
useradd -M -g gnt-masterd -G gnt-daemons,gnt-confd gnt-masterd
useradd -M -g gnt-confd -G gnt-daemons gnt-confd
useradd -M -g gnt-rapi -G gnt-daemons gnt-rapi
useradd -M -G gnt-daemons operator1
useradd -M stranger
cat >/etc/default/ganeti <<END
MASTERD_ARGS="--user=gnt-masterd --group=gnt-masterd"
CONFD_ARGS="--user=gnt-confd --group=gnt-confd"
RAPI_ARGS="--user=gnt-rapi --group=gnt-rapi"
DAEMONS_GROUP=gnt-daemons
END
mkdir -p /srv/ganeti/file-storage /etc/ganeti
echo /srv/ganeti/file-storage >/etc/ganeti/file-storage-paths
cd "$project"
PATH=$project/scripts:$project/daemons:$PATH
as() { user=$1; shift; setpriv --reuid "$user" --regid "$user" --init-groups "$@"; }
say() { echo "=== $*"; }

say init
gnt-cluster init --no-ssh-init --no-etc-hosts --master-netdev lo --enabled-hypervisors fake \
    --enabled-disk-templates diskless,file cluster.example.com
say owners of the daemons
for daemon in noded masterd confd rapi; do
    stat -c "$daemon %U" "/proc/$(cat /run/ganeti/ganeti-$daemon.pid)"
done
say member
as operator1 gnt-node list --no-headers -o name
say rest
echo secret | tools/rapi-passwd --rights write --stdin jack >/dev/null
rest() { curl -sk -u jack:secret "$@"; echo; }
# The daemon notices the user by itself.
until rest -f https://192.0.2.10:5080/2/query/node?fields=name >/dev/null; do :; done
rest -X PUT 'https://192.0.2.10:5080/2/tags?tag=rest'
rest -w '%{http_code}' -o /dev/null https://192.0.2.10:5080/2/info
stat -c '%n %a %U %G' /var/lib/ganeti/rapi /var/lib/ganeti/rapi/users /var/lib/ganeti/rapi.pem
stat -c '%n %a %U' /var/log/ganeti/rapi-daemon.log /var/log/ganeti/rapi-access.log
as gnt-rapi cat /var/lib/ganeti/server.pem /var/lib/ganeti/config.data 2>&1 | sed 's/.*: //'
say stranger
as stranger gnt-node list -o name 2>&1 || echo "refused with $?"
say renew
gnt-cluster renew-crypto -f --new-cluster-certificate --new-confd-hmac-key --new-rapi-certificate
say confd
tools/confd-client -a 192.0.2.10 -r 1
say restart
daemon-util stop-all
daemon-util start-all
gnt-node list --no-headers -o name,mfree --units=m
say verify
gnt-cluster verify --error-codes
say written by the daemons
# Whose the files are as they were made, before ensure-dirs looks at them.
for path in master_state ssconf_master_epoch queue/serial queue/version; do
    stat -c '%n %a %U %G' "/var/lib/ganeti/$path"
done
find /var/lib/ganeti/queue -name 'job-*' -printf '%m %u %g\n' | sort | uniq -c | sed 's/^ *[0-9]* /job /'
gnt-job archive "$(gnt-job list --no-headers -o id | head -1)"
find /var/lib/ganeti/queue/archive -name 'job-*' -printf 'archived %m %u %g\n'
find /var/lib/ganeti/queue/archive -type d -printf 'directory %m %u %g\n' | sort -u
say modes
tools/ensure-dirs
stat -c '%n %a %U %G' /var/lib/ganeti/config.data /var/lib/ganeti/hmac.key \
    /var/lib/ganeti/server.pem /var/lib/ganeti/client.pem /run/ganeti/socket \
    /run/ganeti/socket/ganeti-master /var/log/ganeti/master-daemon.log
say world
find /var/lib/ganeti /var/log/ganeti -type f -perm -004 ! -name 'ssconf_*'
say destroy
gnt-cluster destroy --yes-do-it
say end
