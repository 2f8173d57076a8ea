# A guest that writes until its power is cut. After each operation that has returned, it says so
# through the results port: KIND NUMBER.
mount -t ext4 /dev/vda /mnt || finish
cd /mnt || finish
echo "begun 0" >&3
# The journal of the study of the other drive's write cache lies on the drive whose power is cut.
export XDG_STATE_HOME=/mnt/state
# Stops the study for a while when it has switched the cache.
switch() {
    halfpower study /etc/short-study.toml /dev/vdb --toggle-write-cache --destroy-data-on=cache \
        --no-store --html /tmp/study.html >/dev/null 2>&1 &
    while [ -e /proc/$! ] && grep -q back /sys/block/vdb/cache_type; do usleep 1000; done
    kill -STOP $!
    grep -q through /sys/block/vdb/cache_type && echo "changed $1" >&3
    cp /tmp/file /mnt/while-changed
    sync
    echo "held $1" >&3
    kill -CONT $!
    wait $!
}
number=0
while :; do
    number=$((number + 1))
    { echo $number; cat /bin/busybox; } >/tmp/file
    slot=/mnt/file$((number % 3))
    halfpower copy --quiet /tmp/file $slot --overwrite=$slot && echo "file $number" >&3
    halfpower copy --quiet --resume /tmp/file /mnt/resumed$number && echo "resumed $number" >&3
    rm -f /mnt/resumed$((number - 2))
    rm -rf /tmp/tree
    mkdir -p /tmp/tree/below
    for name in 1 2 3 below/4 below/5; do
        { echo $number; head -c 60000 /bin/busybox; } >/tmp/tree/$name
    done
    halfpower copy --quiet --all-or-nothing /tmp/tree /mnt/tree$number && echo "tree $number" >&3
    rm -rf /mnt/tree$((number - 2))
    halfpower run --ioengine null --runtime 0.05 --trials 1 --quiet --db /mnt/runs.db >/dev/null &&
        echo "run $number" >&3
    switch $number
done
