#!/bin/sh
# The first process of Odometer's Linux guests. What it does stands on the kernel's command line:
#   odometer.hackbench="OPTIONS"  run hackbench with these options, print a line for each run, power off
#   odometer.runs=N               how often (1)
#   odometer.messages=N           messages in a run, repeated in each line (0: not said)
#   odometer.exec="COMMANDS"      runs them in a shell, says whether the last one succeeded, powers off
#   odometer.about                prints a line about the kernel that runs, powers off
#   odometer.console=hvc0         output (and the shell) goes there, to the virtio-console
#   odometer.address=10.0.0.1/24  the address of eth0, the virtio-net
#   odometer.shell                a shell on the console; leaving it powers off (also when nothing else is asked for)
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev 2>/dev/null
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /tmp

# Virtio devices, where there are some. Debian has their drivers as modules.
set -- /proc/device-tree/virtio_mmio*
if [ -e "$1" ]; then
    for module in virtio_ring virtio virtio_mmio virtio_console virtio_blk failover net_failover dimlib virtio_net; do
        [ -f "/lib/modules/$module.ko" ] && insmod "/lib/modules/$module.ko"
    done
fi

command_line=$(cat /proc/cmdline)

# The value of a key on the command line: key="a b" or key=a.
value() {
    echo "$command_line" | sed -n -e "s/.*$1=\"\([^\"]*\)\".*/\1/p" -e t -e "s/.*$1=\([^ ]*\).*/\1/p"
}

# hackbench says `Time: 1.234`: seconds, of which we print nanoseconds. The shell has no fractions, so the decimal
# point is moved by hand.
nanoseconds() {
    seconds=${1%.*}
    fraction=$(echo "${1#*.}000000000" | cut -c 1-9)
    echo "$seconds$fraction" | sed 's/^0*\(.\)/\1/'
}

# Keeps the kernel's own messages from falling into the middle of a line that a program reads.
echo 1 > /proc/sys/kernel/printk

console=$(value odometer.console)
if [ -c "/dev/$console" ]; then
    exec < "/dev/$console" > "/dev/$console" 2>&1
fi
address=$(value odometer.address)
if [ -n "$address" ]; then
    ip link set lo up
    ip address add "$address" dev eth0
    ip link set eth0 up
fi

commands=$(value odometer.exec)
options=$(value odometer.hackbench)
runs=$(value odometer.runs)
messages=$(value odometer.messages)
about=$(echo "$command_line" | grep -w odometer.about)

if [ -n "$commands" ]; then
    if sh -c "$commands"; then ok=true; else ok=false; fi
    echo "@guest {\"schema\":1,\"kind\":\"end\",\"ok\":$ok}"
elif [ -n "$options" ]; then
    # A guest that waits for random bytes measures its entropy, not its exits.
    all=true
    run=0
    while [ "$run" -lt "${runs:-1}" ]; do
        # shellcheck disable=SC2086  # the options are words
        output=$(hackbench $options 2>&1)
        status=$?
        time=$(echo "$output" | sed -n 's/^Time: *\([0-9][0-9]*\.[0-9][0-9]*\).*/\1/p')
        if [ "$status" -eq 0 ] && [ -n "$time" ]; then
            ok=true
        else
            ok=false all=false time=0.0
            echo "hackbench $options: exit status $status"
            echo "$output"
        fi
        echo "@guest {\"schema\":1,\"kind\":\"messaging\",\"run\":$run,\"by\":\"hackbench\",\"messages\":${messages:-0},\"time_ns\":$(nanoseconds "$time"),\"ok\":$ok}"
        run=$((run + 1))
    done
    echo "@guest {\"schema\":1,\"kind\":\"end\",\"ok\":$all}"
elif [ "$about" ]; then
    # Also what the kernel has complained about since it booted.
    page=$(grep -m 1 KernelPageSize /proc/self/smaps | tr -dc 0-9)
    complaints=$(dmesg | grep -c -E 'WARNING: |kernel BUG|Internal error|Unable to handle|Call trace|stall.*detected|detected.*stall|soft lockup')
    features=$(sed -n 's/^Features.*: //p' /proc/cpuinfo | sed q)
    echo "@guest {\"schema\":1,\"kind\":\"about\",\"release\":\"$(uname -r)\",\"cpus\":$(nproc),\"page_kib\":$page,\"complaints\":$complaints,\"features\":\"$features\"}"
    [ "$complaints" -eq 0 ] || dmesg
    echo "@guest {\"schema\":1,\"kind\":\"end\",\"ok\":true}"
else
    echo "Linux $(uname -r) on $(nproc) CPUs, $(sed -n 's/MemTotal: *//p' /proc/meminfo). hackbench is here; leave the shell to power off."
    setsid cttyhack sh -l
fi
# Powering off doesn't wait for what the terminal still has to send; changing its settings does (TCSADRAIN).
stty sane 2>/dev/null
poweroff -f
