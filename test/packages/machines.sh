# Machines with systemd in namespaces of one machine, for tests of the packages. A test reads this file with "." after it has
# set:
#
#   tree        directory of a minimal system, which is not changed
#   directory   directory with the packages which "make deb" has built
#   current     the package
#   former      the package of an earlier release, or nothing
#   count       how many machines there are; they are node1.example.com and so on, with the addresses 192.0.2.NUMBER
#   hosts       an array with further lines for the hosts file of each machine
#
# Each machine is a copy of the tree in memory which boots with systemd, in namespaces of its own; a bridge without
# connections outside joins them. The directory of shared files is the same on all of them. root of node1 can log in
# everywhere with SSH. The test goes on behind "." in a process of its own, in which all machines run; with its end they
# end, too.

group=$(findmnt -n -o TARGET -t cgroup2 | tail -1)

say() { printf '\n== %s\n' "$*"; }
fail() { echo "FAILED: $*" >&2; exit 1; }
expect() { # what, wanted, found
    [ "$2" = "$3" ] || fail "$1: wanted '$2', found '$3'"
    echo "ok: $1: $3"
}

if [ "${NODES_STEP:-}" = "" ]; then
    [ -n "$group" ] || fail "this machine has no control groups of version 2"
    work=$(mktemp -d)
    # When the process of the name space ends, the kernel ends everything in it, and its mounts are gone.
    status=0
    NODES_STEP=prepare NODES_WORK=$work NODES_GROUP=$group/ganeti-packages-$$ \
        unshare --mount --pid --fork --kill-child bash "$0" "$@" || status=$?
    for number in $(seq $count); do
        find "$group/ganeti-packages-$$-$number" -depth -type d -exec rmdir {} \; 2>/dev/null || true
    done
    rmdir "$work"
    exit $status
fi
work=$NODES_WORK

if [ "$NODES_STEP" = prepare ]; then
    mount --make-rprivate /
    mount -t proc proc /proc
    mount -t tmpfs -o mode=755 tmpfs "$work"
    say "What the packages need ($(sed -n 's/^PRETTY_NAME=//p' "$tree/etc/os-release"))"
    mkdir -p "$work"/{base,base-work,root1,shared}
    mount -t overlay overlay -o "lowerdir=$tree,upperdir=$work/base,workdir=$work/base-work" "$work/root1"
    mount -t proc proc "$work/root1/proc"
    cp -L /etc/resolv.conf "$work/root1/etc/resolv.conf"
    printf '#!/bin/sh\nexit 101\n' >"$work/root1/usr/sbin/policy-rc.d"; chmod 755 "$work/root1/usr/sbin/policy-rc.d"
    chroot "$work/root1" env DEBIAN_FRONTEND=noninteractive sh -ec '
        apt-get -q update >/dev/null
        apt-get -qy --no-install-recommends satisfy "$1" >/tmp/apt.log 2>&1 || { cat /tmp/apt.log; exit 1; }
        apt-get clean
        # Machines have different keys and no control of hardware.
        rm -f /etc/ssh/ssh_host_* /usr/sbin/policy-rc.d
        : >/etc/machine-id
        systemctl -q mask systemd-modules-load.service systemd-udevd.service getty.target getty-static.service \
            console-getty.service apt-daily.timer apt-daily-upgrade.timer
        systemctl -q enable ssh.service
    ' sh "$(dpkg-deb -f "$current" Depends), systemd-sysv, dbus, openssh-server, openssh-client, qemu-system-x86,
        qemu-utils, socat, fdisk, man-db"
    umount "$work/root1/proc" "$work/root1"
    export NODES_STEP=run
    exec unshare --net bash "$0" "$@"
fi

# -- machines ---------------------------------------------------------------------------------------------------------

# The bridge of a machine would take a lower address of a guest's interface. The earlier package gives it such a one.
high=fe:fe
[ -z "$former" ] || high=02:00

pids=()
alive() { # number, process
    kill -0 "$2" || { cat "$work/console$1"; fail "node$1 has ended"; }
    sleep 0.1
}
boot() { # number
    local number=$1 root=$work/root$1 name=node$1.example.com
    mkdir -p "$root" "$work/upper$number" "$work/work$number" "$NODES_GROUP-$number"
    mount -t overlay overlay -o "lowerdir=$work/base:$tree,upperdir=$work/upper$number,workdir=$work/work$number" "$root"
    echo "$name" >"$root/etc/hostname"
    { echo "127.0.0.1 localhost"; for n in $(seq $count); do echo "192.0.2.$n node$n.example.com node$n"; done
      printf '%s\n' "${hosts[@]}"; } >"$root/etc/hosts"
    chroot "$root" ssh-keygen -q -A
    mkdir -p -m 700 "$root/root/.ssh"
    [ "$number" = 1 ] && ssh-keygen -q -t ed25519 -N '' -C root@node1 -f "$root/root/.ssh/id_ed25519"
    cp "$work/root1/root/.ssh/id_ed25519.pub" "$root/root/.ssh/authorized_keys"
    mkdir -p "$root/srv/ganeti/shared-file-storage" "$root/opt/packages"
    mount --bind "$work/shared" "$root/srv/ganeti/shared-file-storage"
    cp "$directory"/*.deb "$root/opt/packages/"
    [ -z "$former" ] || cp "$former" "$root/opt/former.deb"
    bash -c 'echo $$ >"$1/cgroup.procs"
        exec unshare --mount --pid --uts --net --ipc --cgroup --fork --kill-child bash -ec '\''
            mount --rbind "$1" "$1"
            cd "$1"
            mount -t proc proc proc
            mount -t sysfs sysfs sys
            mount -t cgroup2 cgroup2 sys/fs/cgroup
            mount -t tmpfs -o mode=755 tmpfs dev
            for device in null zero full random urandom tty kvm net/tun; do
                [ -e /dev/$device ] || continue
                mkdir -p "dev/$(dirname $device)"
                cp -a /dev/$device dev/$device
            done
            mkdir dev/pts dev/shm
            mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
            mount -t tmpfs tmpfs dev/shm
            ln -s pts/ptmx dev/ptmx
            ln -s /proc/self/fd dev/fd
            mount -t tmpfs -o mode=755 tmpfs run
            pivot_root . mnt
            cd /
            umount -l /mnt
            hostname "$2"
            exec env -i container=lxc PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd
        '\'' bash "$2" "$3"' bash "$NODES_GROUP-$number" "$root" "$name" </dev/null >"$work/console$number" 2>&1 &
    # The first process of the name space is a child of unshare.
    local outer=$!
    until pids[number]=$(pgrep -P $outer); do alive $number $outer; done
    ip link add "port$number" type veth peer name eth0 address "$high:00:00:00:0$number" netns "${pids[number]}"
    ip link set "port$number" master lan up
    until [ -S "/proc/${pids[number]}/root/run/systemd/private" ]; do alive $number $outer; done
    inside "$number" sh -ec "
        ip link set lo up; ip link add br0 type bridge; ip link set eth0 master br0 up
        ip address add 192.0.2.$number/24 dev br0; ip link set br0 up"
    # "degraded" is one of the states of a machine which has started.
    inside "$number" systemctl is-system-running --wait || true
}
inside() { # number, command...
    local number=$1; shift
    nsenter -t "${pids[number]}" -a env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 "$@"
}
master() { inside 1 "$@"; }
install() { # number, file
    inside "$1" dpkg -i "$2" >"$work/dpkg.log" 2>&1 || { cat "$work/dpkg.log"; fail "dpkg -i $2 on node$1"; }
}
failed_units() {
    local n unit
    for n in $(seq $count); do
        for unit in $(inside $n systemctl --failed --plain --no-legend | cut -d' ' -f1); do
            echo "node$n: $unit"
            inside $n journalctl --no-pager -n 30 -u "$unit" >&2
        done
    done
}
verify() {
    master gnt-cluster verify >"$work/verify.log" 2>&1 || { cat "$work/verify.log"; fail "verify"; }
    echo "ok: gnt-cluster verify"
}
seconds=$SECONDS
lap() { echo "-- $((SECONDS - seconds)) s"; seconds=$SECONDS; }

say "$count machines with systemd"
ip link set lo up
ip link add lan type bridge
ip link set lan up
for number in $(seq $count); do boot "$number"; done
lap
