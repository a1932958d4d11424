#!/usr/bin/env bash
# Runs a program under mpirun on "nodes" of this machine that are joined by links of limited rate:
# network namespaces, each with one link to a switch, real TCP between them. Node i runs on core
# i modulo the number of cores.
#
# usage: network.sh NODES RANKS_PER_NODE RATE COMMAND [ARGUMENTS...]
#   RATE  of each link and direction as tc writes it: 1gbit, 200mbit
#
# Needs root, iproute2 and OpenMPI. Everything is named after this process and removed at its end.
set -euo pipefail
if (( $# < 4 )); then
  sed -n '2,9s/^# \{0,1\}//p' "$0"
  exit 2
fi
nodes=$1 ranks_per_node=$2 rate=$3
shift 3
if [[ ! $rate =~ ^([0-9]+)([gmk])bit$ ]]; then
  echo "network.sh: a rate is 1gbit, 200mbit or 64kbit" >&2
  exit 2
fi
declare -A unit=([g]=1000000000 [m]=1000000 [k]=1000)
bytes_per_second=$(( BASH_REMATCH[1] * unit[${BASH_REMATCH[2]}] / 8 ))
if (( EUID != 0 )); then
  echo "network.sh: makes network namespaces, which needs root" >&2
  exit 77
fi

tag=ff$$
scratch=$(mktemp -d)
clean_up() {
  for (( i = 0; i < nodes; ++i )); do ip netns del "$tag-$i" 2> /dev/null || true; done
  ip netns del "$tag-switch" 2> /dev/null || true
  rm -rf "$scratch"
}
trap clean_up EXIT

# The bucket holds what goes out between two ticks of the kernel's clock (4 ms), and some more: a
# smaller one keeps the link below its rate.
burst=$(( bytes_per_second * 6 / 1000 + 16384 ))
limit() { tc -n "$1" qdisc add dev "$2" root tbf rate "$rate" burst "$burst" latency 50ms; }

ip netns add "$tag-switch"
ip -n "$tag-switch" link add bridge type bridge
ip -n "$tag-switch" link set bridge up
hosts=""
for (( i = 0; i < nodes; ++i )); do
  ip netns add "$tag-$i"
  ip link add eth0 netns "$tag-$i" type veth peer name "port$i" netns "$tag-switch"
  ip -n "$tag-$i" addr add "10.77.0.$(( i + 1 ))/24" dev eth0
  ip -n "$tag-$i" link set lo up
  ip -n "$tag-$i" link set eth0 up
  ip -n "$tag-switch" link set "port$i" master bridge up
  limit "$tag-$i" eth0
  limit "$tag-switch" "port$i"
  hosts+="${hosts:+,}$tag-$i:$ranks_per_node"
done

# What mpirun starts another node's daemon with: the namespace is the node, by its host name too.
cat > "$scratch/agent" << 'AGENT'
#!/usr/bin/env bash
host=$1
shift
core=$(( ${host##*-} % $(nproc --all) ))
exec ip netns exec "$host" taskset -c "$core" unshare --uts bash -c "hostname $host; $*"
AGENT
chmod +x "$scratch/agent"

# Plain sends (btl_tcp_flags 1): OpenMPI's default over TCP, "put", takes half as long again for
# messages of a megabyte both ways on such links.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
ip netns exec "$tag-0" taskset -c 0 unshare --uts \
  bash -c 'hostname "$1"; shift; exec "$@"' _ "$tag-0" \
  mpirun --oversubscribe --bind-to none -n $(( nodes * ranks_per_node )) --host "$hosts" \
  --mca plm_rsh_agent "$scratch/agent" --mca pml ob1 --mca btl tcp,vader,self \
  --mca btl_tcp_flags 0x1 --mca btl_tcp_if_include 10.77.0.0/24 \
  --mca oob_tcp_if_include 10.77.0.0/24 "$@"
