#!/bin/sh
# kill-studies DEVICE CONSENT COUNT: kills the study of a drive's write cache COUNT times, every
# second time while the cache is switched, and lets `restore` put it back each time.
device=$1 consent=$2 count=$3
state() {
    halfpower study /etc/short-study.toml "$device" --no-store --html /tmp/study.html 2>&1 |
        grep -o 'set to write [a-z]*'
}
journal() {
    set -- "$HOME"/.local/state/halfpower/journal/settings-*.json
    [ -e "$1" ]
}
was=$(state)
switched=0 changed=0
for kill in $(seq "$count"); do
    halfpower study /etc/short-study.toml "$device" --toggle-write-cache --no-store \
        "--destroy-data-on=$consent" --html /tmp/study.html >/tmp/study.txt 2>&1 &
    if [ $((kill % 2)) -eq 0 ]; then
        while [ -e /proc/$! ] && ! journal; do usleep 1000; done
        usleep $((RANDOM * 6))
    else
        usleep $((RANDOM * 50))
    fi
    kill -9 $! 2>/dev/null
    wait $! 2>/dev/null
    [ "$(state)" = "$was" ] || switched=$((switched + 1))
    halfpower restore >/tmp/restored 2>&1 || cat /tmp/restored
    now=$(state)
    [ "$now" = "$was" ] || {
        changed=$((changed + 1))
        echo "after kill $kill: $now"
        cat /tmp/restored
    }
done
echo "$was at first; $count kills; $switched left the cache switched; after restore: $changed"
[ "$changed" -eq 0 ] && [ "$switched" -ge $((count * 2 / 5)) ]
