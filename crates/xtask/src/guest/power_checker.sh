# A guest that looks at drives after power cuts. /expected has a line for each: the drive, the
# number of the last operation of each kind that had returned before the cut, and 1 if a write cache
# was switched then. The drive with that cache has kept its mode.
for cache in /sys/block/vd*; do [ "$(cat "$cache/serial")" = cache ] && break; done
check() {
    drive=$1 file=$2 resumed=$3 tree=$4 run=$5 setting=$6
    mount -t ext4 "/dev/$drive" /mnt || { echo "$drive: the file system cannot be mounted"; return; }
    for path in /mnt/file? /mnt/resumed*; do
        [ -e "$path" ] || continue
        tail -n +2 "$path" | cmp -s - /bin/busybox || echo "$drive: $path is half a copy"
    done
    if [ "$file" -gt 0 ]; then
        found=$(head -n 1 "/mnt/file$((file % 3))" 2>/dev/null)
        [ "${found:-0}" -ge "$file" ] || echo "$drive: copy $file is lost, file has ${found:-nothing}"
    fi
    [ "$resumed" -eq 0 ] || [ -e "/mnt/resumed$resumed" ] || echo "$drive: resumed $resumed is lost"
    for path in /mnt/tree*; do
        [ -e "$path" ] || continue
        # A tree that is being removed is older than the last one.
        [ "${path#/mnt/tree}" -ge "$tree" ] || continue
        for name in 1 2 3 below/4 below/5; do
            { tail -n +2 "$path/$name" | cmp -s -n 60000 - /bin/busybox &&
                [ "$(head -n 1 "$path/$name")" = "${path#/mnt/tree}" ]; } 2>/dev/null ||
                echo "$drive: $path/$name is missing or half a copy"
        done
    done
    [ "$tree" -eq 0 ] || [ -d "/mnt/tree$tree" ] || echo "$drive: tree $tree is lost"
    if [ "$run" -gt 0 ]; then
        halfpower runs list --db /mnt/runs.db >/tmp/runs 2>&1 || echo "$drive: $(cat /tmp/runs)"
        found=$(grep -c -- '--ioengine null' /tmp/runs)
        [ "$found" -ge "$run" ] || echo "$drive: $found of $run stored runs"
    fi
    if [ "$setting" -eq 1 ]; then
        echo "write through" >"$cache/cache_type"
        XDG_STATE_HOME=/mnt/state halfpower restore >/tmp/restored 2>&1
        grep -q back "$cache/cache_type" ||
            echo "$drive: the write cache is not put back: $(tr '\n' ' ' </tmp/restored)"
    fi
    umount /mnt
    echo "$drive: looked at"
}
while read -r line; do
    # shellcheck disable=SC2086
    check $line
done </expected
