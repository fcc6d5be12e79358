#!/bin/sh
# The first process of Odometer's Linux guests. What it does stands on the kernel's command line:
#   odometer.hackbench="OPTIONS"  run hackbench with these options, print a line for each run, power off
#   odometer.runs=N               how often (1)
#   odometer.messages=N           messages in a run, repeated in each line (0: not said)
#   odometer.exec="COMMANDS"      runs them in a shell, says whether the last one succeeded, powers off
#   odometer.perf=N               N null system calls by perf, prints a line with what one takes, powers off
#   odometer.boot                 says that it runs, powers off: nothing else is measured of such a guest than its boot
#   odometer.about                prints a line about the kernel that runs, powers off
#   odometer.console=hvc0         output (and the shell) goes there, to the virtio-console
#   odometer.address=10.0.0.1/24  the address of eth0, the virtio-net
#   odometer.shell                a shell on the console; leaving it powers off (also when nothing else is asked for)
#
# Each process that is started here is a handful of exits of the hypervisor that is being measured (wake-ups of the other
# CPU, mostly), so what the shell can do itself it does.
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
read -r command_line < /proc/cmdline
case " $command_line " in
    *" odometer.boot "*)
        echo "Odometer's init runs"
        poweroff -f
        ;;
esac

# Sets `found` to the value of a key on the command line, key="a b" or key=a; to nothing if the key isn't there.
value() {
    found=
    case " $command_line" in
        *" $1="*) found=" $command_line" found=${found#*" $1="} ;;
        *) return ;;
    esac
    case $found in
        '"'*) found=${found#?} found=${found%%'"'*} ;;
        *) found=${found%% *} ;;
    esac
}

# hackbench says `Time: 1.234`: seconds. Sets `nanoseconds`; the shell has no fractions, so the decimal point is
# moved by hand.
to_nanoseconds() {
    fraction=${1#*.}000000000
    while [ "${#fraction}" -gt 9 ]; do fraction=${fraction%?}; done
    nanoseconds=${1%%.*}$fraction
    while [ "${#nanoseconds}" -gt 1 ] && [ "${nanoseconds#0}" != "$nanoseconds" ]; do nanoseconds=${nanoseconds#0}; done
}

# Virtio devices, where there are some. Debian has their drivers as modules: the transport, then what is found on it.
set -- /proc/device-tree/virtio_mmio*
if [ -e "$1" ]; then
    mount -t devtmpfs devtmpfs /dev
    load() {
        for module; do
            [ -f "/lib/modules/$module.ko" ] && insmod "/lib/modules/$module.ko"
        done
    }
    load virtio_ring virtio virtio_mmio
    for alias in /sys/bus/virtio/devices/*/modalias; do
        [ -f "$alias" ] || continue
        read -r device < "$alias"
        case $device in
            virtio:d00000001v*) load failover net_failover dimlib virtio_net ;;
            virtio:d00000002v*) load virtio_blk ;;
            virtio:d00000003v*) load virtio_console ;;
        esac
    done
fi

# Keeps the kernel's own messages from falling into the middle of a line that a program reads.
echo 1 > /proc/sys/kernel/printk

value odometer.console
console=
if [ -c "/dev/$found" ]; then
    console=$found
    exec < "/dev/$console" > "/dev/$console" 2>&1
fi
value odometer.address
if [ -n "$found" ]; then
    ip link set lo up
    ip address add "$found" dev eth0
    ip link set eth0 up
fi

value odometer.perf
calls=$found
value odometer.exec
commands=$found
value odometer.hackbench
options=$found
value odometer.runs
runs=${found:-1}
value odometer.messages
messages=${found:-0}

case " $command_line " in
    *" odometer.about "*) about=true ;;
    *) about= ;;
esac

# What a person or a script may expect, and hackbench doesn't need.
if [ -n "$commands" ] || [ -z "$options" ]; then
    [ -c /dev/full ] || mount -t devtmpfs devtmpfs /dev
    mkdir -p /dev/pts /dev/shm
    mount -t devpts devpts /dev/pts
    mount -t tmpfs tmpfs /tmp
fi

if [ -n "$commands" ]; then
    if sh -c "$commands"; then ok=true; else ok=false; fi
    echo "@guest {\"schema\":1,\"kind\":\"end\",\"ok\":$ok}"
elif [ -n "$options" ]; then
    all=true
    run=0
    while [ "$run" -lt "$runs" ]; do
        # shellcheck disable=SC2086  # the options are words
        hackbench $options > /tmp/output 2>&1
        status=$?
        ok=false nanoseconds=0
        while read -r word time _; do
            case $word:$time in
                Time::*[!0-9.]*) ;;
                Time::*.*) ok=true; to_nanoseconds "$time" ;;
            esac
        done < /tmp/output
        if [ "$status" -ne 0 ] || [ "$ok" = false ]; then
            ok=false all=false
            echo "hackbench $options: exit status $status"
            cat /tmp/output
        fi
        echo "@guest {\"schema\":1,\"kind\":\"messaging\",\"run\":$run,\"by\":\"hackbench\",\"messages\":$messages,\"time_ns\":$nanoseconds,\"ok\":$ok}"
        run=$((run + 1))
    done
    echo "@guest {\"schema\":1,\"kind\":\"end\",\"ok\":$all}"
elif [ -n "$calls" ]; then
    # perf says, among other things, `0.123456 usecs/op`.
    perf bench syscall basic -l "$calls" > /tmp/output 2>&1
    us=$(sed -n 's/^ *\([0-9.]*\) usecs.op.*/\1/p' /tmp/output)
    isolated=$(dmesg | grep -c 'detected: Kernel page table isolation')
    ok=true
    if [ -z "$us" ]; then
        ok=false us=0
        cat /tmp/output
    fi
    echo "@guest {\"schema\":1,\"kind\":\"perf\",\"calls\":$calls,\"us\":$us,\"isolated\":$isolated,\"ok\":$ok}"
    echo "@guest {\"schema\":1,\"kind\":\"end\",\"ok\":$ok}"
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
# Powering off doesn't wait for what a PL011 still has to send; changing its settings does (TCSADRAIN).
[ "$console" ] || stty sane 2>/dev/null
exec poweroff -f
