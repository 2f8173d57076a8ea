#!/bin/busybox sh
# The first program of a guest: mounts the kernel's file systems, loads modules in their order, and
# runs numbered steps. Each step's exit code and output go through the port named "results".
/bin/busybox --install -s /bin
export PATH=/usr/bin:/bin HOME=/root TERM=dumb
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run
mount -t tracefs trace /sys/kernel/tracing 2>/dev/null
ln -s /proc/self/fd /dev/fd
ip link set lo up
while read -r module parameters; do
    # shellcheck disable=SC2086
    insmod "/modules/$module" $parameters 2>/tmp/insmod || { echo "$module: $(cat /tmp/insmod)"; }
done </modules/order
for port in /sys/class/virtio-ports/*; do
    [ "$(cat "$port/name")" = results ] && exec 3>"/dev/${port##*/}"
done

# step NUMBER: runs the commands on standard input.
step() {
    cat >/tmp/step
    sh /tmp/step >/tmp/output 2>&1 </dev/null
    code=$?
    echo "step $1 $code $(stat -c %s /tmp/output)" >&3
    cat /tmp/output >&3
    [ "$1" -ne 0 ] || [ $code -eq 0 ] || finish
}

finish() {
    sync
    poweroff -f
}

