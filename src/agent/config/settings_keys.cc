// The table of settings: their types, defaults, bounds and help texts.
#include "agent/config/exchange_settings.h"
#include "agent/config/settings.h"
#include "group/core_name.h"

namespace offpath::agent {

namespace {

constexpr std::int64_t mebibyte = 1 << 20;
constexpr std::int64_t tebibyte = 1LL << 40;

constexpr ConfigKey keys_of_agent[] = {
    {"agent.name", ConfigType::text, "",
     "The agent's name, as programs, logs and metrics show it. Empty: the name of the machine."},
    {"agent.role", ConfigType::text, "host",
     "Where the agent runs: host, or dpu for the card. Other members know it, and stages of sift pools are mapped by "
     "it ([guides/sift.md](../guides/sift.md))."},
    {"agent.rack", ConfigType::text, "",
     "The rack that the machine stands in: letters, digits, '.', '-' and '_'; {index} stands for group.index. Other "
     "members know it; stages of sift pools and exchanges with order = \"locality\" are mapped by it. Empty: unknown."},
    {"agent.listen", ConfigType::texts, "",
     "Addresses that programs connect to: unix:/path, or HOST:PORT after tcp:, tls:, verbs: (RDMA) or doca: (DOCA "
     "DMA). Empty: unix:$XDG_RUNTIME_DIR/offpath/agent.sock, for root unix:/run/offpath/agent.sock."},
    {"agent.http", ConfigType::text, "",
     "Address of /metrics, /status.json, /healthz and the status page: HOST:PORT or unix:/path; off: none. Empty: "
     "http.sock beside agent.sock, or NAME-http.sock beside NAME.sock, for the first Unix socket of agent.listen, if "
     "any."},
    {"agent.http_hosts", ConfigType::texts, "",
     "Further host names under which agent.http is reached, besides localhost and this machine's name. IP addresses "
     "need no entry. A request to another name is refused."},
    {"agent.http_events", ConfigType::boolean, "false",
     "Show reasons of failed requests, and the newest lines of the log, to every client of agent.http at a TCP "
     "address. The agent's own user sees them at a Unix socket."},
    {"agent.cores", ConfigType::integer, "1",
     "Number of loops, each in a process with an equal share of memory.bytes_max; programs see one agent "
     "([operate/agent.md](../operate/agent.md#more-than-one-loop)). In the group, the loops are the members NAME, "
     "NAME+1 and so on.",
     1, group::cores_max},
    {"agent.pin", ConfigType::integer, "-1", "The core that the loop runs on. -1: any.", -1, 4095},
    {"agent.pins", ConfigType::texts, "",
     "With agent.cores, the cores that the loops run on, such as 2 or 4-7, one for each loop. Empty: any."},
    {"agent.spill_directory", ConfigType::text, "",
     "Absolute path for objects of pools with spill ([guides/pools.md](../guides/pools.md)); created if its parent "
     "exists. Owned by the agent's user, closed to others (chmod 700). {index} stands for group.index. "
     "Empty: such pools are refused."},
    {"agent.profile", ConfigType::text, "none",
     "Slows this agent down to the speed of a device, for experiments: none, or bluefield2 (its link's bandwidth and "
     "latency, and a cgroup limit for the processor)."},
    {"loop.spin", ConfigType::duration, "1ms",
     "How long the loop polls after its last work before it sleeps; 100 us at most after fewer than 16 rounds of "
     "work. Once it has polled in vain eight times in a row, it sleeps at once until that would have paid again.",
     0, 60 * second_ns},
    {"loop.look_out", ConfigType::integer, "5",
     "Percent of a core that the loop may spend, for all programs together, on being awake when a program that posts "
     "at regular intervals is expected to post, so that the post does not have to wake it. 0: none.",
     0, 50},
    {"loop.batch", ConfigType::boolean, "true",
     "true: the loop runs under SCHED_BATCH. It never preempts a program that wakes it on the same core, and runs "
     "when the program waits or has used its time slice. false: the system's usual policy: the loop may preempt "
     "the program."},
    {"loop.pull_slice", ConfigType::bytes, "512KiB",
     "How much of one batch is read before other channels get their turn.", 4096, 1 << 30},
    {"loop.asked_slice", ConfigType::bytes, "2MiB",
     "As loop.pull_slice, for links where the program answers each read (tcp, tls). Larger, because each slice costs a "
     "request and an answer.",
     4096, 1 << 30},
    {"jobs.threads", ConfigType::integer, "2",
     "Threads for work that would block the loop, such as building Arrow arrays or writing files.", 1, 256},
    {"jobs.queue_max", ConfigType::integer, "64",
     "Jobs handed to these threads at a time; further jobs wait in the loop.", 1, 65536},
    {"queries.threads", ConfigType::integer, "2", "Threads that compute one query's answer.", 1, 256},
    {"queries.running_max", ConfigType::integer, "1",
     "Queries that compute at a time; each occupies one of jobs.threads.", 1, 256},
    {"queries.memory_max", ConfigType::bytes, "512MiB",
     "The most memory for one part of an answer, and the most that Arrow takes for all queries of one user.", mebibyte,
     tebibyte},
    {"queries.open_max", ConfigType::integer, "16", "Answers that one program may read at a time.", 1, 65536},
    {"flight.listen", ConfigType::text, "",
     "Address at which Arrow Flight clients reach the pools of the agent's own user: tcp:HOST:PORT or tls:HOST:PORT, "
     "port 0 for any. Empty: Flight is not served."},
    {"flight.token_file", ConfigType::text, "",
     "File with the token that every call sends as \"authorization: Bearer TOKEN\": at least 16 printable characters, "
     "readable by its owner alone. Read again on SIGHUP."},
    {"flight.tls_certificate", ConfigType::text, "", "PEM file with the certificate of a tls endpoint of Flight."},
    {"flight.tls_key", ConfigType::text, "",
     "PEM file with the private key of that certificate, readable by its owner alone."},
    {"flight.queries_max", ConfigType::integer, "2", "Answers that Flight clients read at a time.", 1, 1024},
    {"memory.bytes_max", ConfigType::bytes, "8GiB",
     "Memory for frames, including memory promised to programs as credit.", mebibyte, 64 * tebibyte},
    {"memory.user_bytes_max", ConfigType::bytes, "64TiB",
     "The part of memory.bytes_max that frames of one user may take, including memory promised as credit.", mebibyte,
     64 * tebibyte},
    {"memory.window", ConfigType::bytes, "256MiB", "Credit that an open stream is given in advance, if there is room.",
     4096, tebibyte},
    {"memory.cached_max", ConfigType::bytes, "1GiB",
     "Memory of released frames that is kept for later frames, in addition to memory.bytes_max.", 0, tebibyte},
    {"memory.prepared_max", ConfigType::bytes, "16MiB",
     "The largest buffer that a job prepares for a stream's next frame before it is requested. 0: none.", 0, tebibyte},
    {"memory.huge_pages", ConfigType::boolean, "true",
     "Use huge pages for buffers of 2 MiB and more: requested where a job prepares a buffer (memory.prepared_max), "
     "asked for elsewhere ([operate/agent.md](../operate/agent.md#memory))."},
    {"limits.channels_max", ConfigType::integer, "4096", "Programs connected at the same time.", 1, 1 << 20},
    {"limits.handshakes_max", ConfigType::integer, "64",
     "Connections to one listener whose handshake is not complete; each has 5 s for it. One user or network address "
     "may have a quarter of them "
     "([operate/threat-model.md](../operate/threat-model.md#what-one-user-can-take-from-others)).",
     1, 65536},
    {"limits.user_channels_max", ConfigType::integer, "4096", "Programs of one user connected at the same time.", 1,
     1 << 20},
    {"limits.streams_max", ConfigType::integer, "65536", "Open streams of all programs together.", 1, 1 << 24},
    {"limits.user_streams_max", ConfigType::integer, "65536", "Open streams of one user's programs together.", 1,
     1 << 24},
    {"limits.user_pools_max", ConfigType::integer, "16384",
     "Pools of one user, on each member that knows them. Empty pools that are not in use make room for new ones.", 1,
     1 << 24},
    {"limits.user_steps_max", ConfigType::integer, "262144",
     "Steps of one user's streams that some ranks have ended and others have not. A step counts once for each rank "
     "that has ended it.",
     1, 1 << 28},
    {"limits.segments_max", ConfigType::integer, "4096", "Shared segments of one program.", 1, 1 << 20},
    {"limits.segment_bytes_max", ConfigType::bytes, "64GiB", "Bytes of all shared segments of one program together.",
     mebibyte, 64 * tebibyte},
    {"limits.silence", ConfigType::duration, "5s",
     "How long a program on another machine (tcp, tls, verbs, doca) and the agent may leave each other without an "
     "answer. After that each considers the other gone (switched off, or cut off from the network). Whole seconds.",
     wire::silence_ms_min * millisecond_ns, wire::silence_ms_max * millisecond_ns},
    {"task.resident_max", ConfigType::bytes, "1GiB",
     "Memory that the inputs and outputs of one session of tasks may occupy between tasks.", 4096, tebibyte},
    {"task.messages_max", ConfigType::bytes, "1GiB",
     "Memory for messages between functions that have not been received ([guides/tasks.md](../guides/tasks.md)). One "
     "lane may use 256MiB of it at most. Each lane may use 1MiB even if the rest is used up.",
     mebibyte, tebibyte},
    {"task.user_plugins", ConfigType::text, "off",
     "own: a program may name a shared object, whose functions run in workers as its user "
     "([guides/tasks.md](../guides/tasks.md)). It needs a Unix socket, and users other than the agent's need an agent "
     "of root. off: programs cannot name any."},
    {"task.user_plugins_max", ConfigType::integer, "4", "Such shared objects that one user may have at a time.", 1,
     256},
    {"task.user_workers", ConfigType::integer, "2", "Processes that run the functions of each such shared object.", 1,
     256},
    {"task.user_memory", ConfigType::bytes, "1GiB", "As plugin.memory, for each such shared object.", mebibyte,
     tebibyte},
    {"task.user_deadline", ConfigType::duration, "60s", "As plugin.deadline, for each such shared object.",
     millisecond_ns, 30 * 24 * 3600 * second_ns},
    {"limits.waiting_max", ConfigType::integer, "65536",
     "Requests that wait for objects, here or on other members, including computations and listings.", 1, 1 << 24},
    {"limits.user_waiting_max", ConfigType::integer, "0",
     "The part of limits.waiting_max for requests of one user, and the same share of the 64 MiB for their keys and "
     "arguments. 0: seven eighths.",
     0, 1 << 24},
    {"limits.frames_max", ConfigType::integer, "0",
     "Frames in memory at the same time; each is a mapping and a descriptor. Frames of at most 4096 bytes share slabs "
     "of 1024, and a slab counts as one frame. 0: three quarters of the kernel's limits (vm.max_map_count, "
     "LimitNOFILE).",
     0, 1 << 30},
    {"limits.user_frames_max", ConfigType::integer, "0",
     "The part of limits.frames_max for frames of one user. 0: seven eighths.", 0, 1 << 30},
    {"limits.user_descriptors_max", ConfigType::integer, "0",
     "Descriptors that one user's programs occupy: one for each connection, and one for each file or socket that they "
     "hand over, until it is closed. 0: seven eighths of the share of all programs, a third of LimitNOFILE less "
     "frames.",
     0, 1 << 30},
    {"limits.user_mappings_max", ConfigType::integer, "0",
     "Shared segments of one user's programs on this machine: one for each program, and those that it allocates. 0: "
     "seven eighths of the share of all programs, which is three quarters of vm.max_map_count less frames.",
     0, 1 << 30},
    {"limits.leases_max", ConfigType::integer, "65536", "Frames that one program may hold mapped.", 1, 1 << 24},
    {"group.members", ConfigType::texts, "",
     "Addresses of agents that form a group with this one. This agent's own address may be among them, so that all "
     "members can have the same list. Each is tried until it answers."},
    {"group.join", ConfigType::texts, "",
     "Addresses of one or more running members. The agent joins their group, whichever other members it has."},
    {"group.from_launcher", ConfigType::boolean, "false",
     "All agents that one launcher started together form a group; the launcher exchanges their addresses (mpirun of "
     "MPICH, Intel MPI and Open MPI, srun --mpi=pmi2 and --mpi=pmix)."},
    {"group.address", ConfigType::text, "",
     "Address at which other members reach this agent. Empty: the first of agent.listen that is not unix, else the "
     "first. A wildcard address is announced with the machine's name."},
    {"group.index", ConfigType::integer, "-1",
     "The number of this agent among those of its machine. {index} stands for it in agent.name, agent.rack, "
     "agent.listen and agent.http. -1: the local rank if MPI or Slurm give one, else the rank if PMIx gives one, "
     "else 0.",
     -1, 65535},
    {"group.dead_after", ConfigType::duration, "5s",
     "The longest time after a member's last sign of life until the others consider it dead; requests to it then fail. "
     "Set the same time on all members.",
     500 * millisecond_ns, 3600 * second_ns},
    {"group.tls_ca", ConfigType::text, "",
     "PEM file with the certificate authority of the other members, for tls addresses."},
    {"sampling.interval", ConfigType::duration, "1s",
     "How often hosts ([[host]]), this machine's own sources ([[source]]) and gauges of programs are sampled.",
     100 * microsecond_ns, 3600 * second_ns},
    {"sampling.deadline", ConfigType::duration, "1s",
     "How long a sample may take, including retransmissions. A host that has not answered for three deadlines and "
     "three intervals has no values.",
     millisecond_ns, 3600 * second_ns},
    {"sampling.key_file", ConfigType::text, "",
     "The key shared with the samplers of all hosts: a file of 16 to 4096 bytes, readable by its owner alone. Needed "
     "for [[host]]."},
    {"actuators.sysfs", ConfigType::text, "/sys",
     "Directory of the files of power and cpufreq actuators ([[actuator]])."},
    {"actuators.cgroups", ConfigType::text, "/sys/fs/cgroup",
     "Directory of the cgroups of cpu and io actuators. With cgroups of version 1 actuator.where begins with the "
     "directory of the controller: cpu/jobs, blkio/jobs."},
    {"actuators.former", ConfigType::text, "",
     "Directory for the limits before actuators set them. If offpath-keeper, which restores them, is killed, the "
     "agent's next start does it. Agents that share the directory never set the same limit. Empty: "
     "actuators, beside agent.listen's socket."},
    {"alarms.hook", ConfigType::texts, "",
     "A program and its arguments, run for each alarm ([[alarm]]) that is raised or cleared. The OFFPATH_ALARM_* "
     "variables of its environment describe the alarm. It runs without a shell."},
    {"alarms.hook_limit", ConfigType::duration, "10s",
     "After this time the hook and all its child processes are killed.", millisecond_ns, 3600 * second_ns},
    {"security.allow_uids", ConfigType::texts, "",
     "Users, by number or name, who may connect to Unix sockets besides root and the agent's own user."},
    {"security.key_file", ConfigType::text, "",
     "The key shared with programs that connect by tcp, tls, verbs or doca: a file of 16 to 4096 bytes, readable by "
     "its owner alone. Needed for such addresses. Read again on SIGHUP, as are the next three."},
    {"security.old_key_files", ConfigType::texts, "",
     "Keys that are accepted besides key_file while programs change over to it "
     "([operate/threat-model.md](../operate/threat-model.md#changing-a-key)). The log names each program that knows "
     "only an old key."},
    {"security.tls_certificate", ConfigType::text, "",
     "PEM file with the agent's certificate chain, for tls addresses."},
    {"security.tls_key", ConfigType::text, "",
     "PEM file with the private key of the certificate, readable by its owner alone."},
    {"security.insecure_network", ConfigType::boolean, "false",
     "Allow connections that others on the network could read or change: tcp, verbs and doca addresses, and HTTP, "
     "beyond this machine."},
    {"security.keep_ptrace", ConfigType::boolean, "true",
     "If started with CAP_SYS_PTRACE (as root, or by systemd), keep it, to read arrays of every allowed user's "
     "programs in place; otherwise they copy through shared memory. Other capabilities are given up, except those for "
     "plugin.user."},
    {"security.sandbox", ConfigType::text, "on",
     "on: the kernel refuses system calls that the agent, its workers and their children do not need; workers get "
     "namespaces ([operate/threat-model.md](../operate/threat-model.md#the-sandbox)). log: such calls are only "
     "logged. "
     "off: no sandbox."},
    {"security.force_staging", ConfigType::boolean, "false",
     "Never read a program's memory directly, even if that is permitted; programs copy through shared memory."},
    {"tcp.device", ConfigType::text, "",
     "The interface for programs' TCP connections, whose TCP then belongs to this agent alone: INTERFACE, "
     "xdp:INTERFACE, auto:INTERFACE, tap:NAME, dpdk:DEVICE or agent:ADDRESS "
     "([guides/sockets.md](../guides/sockets.md#devices)). Empty: none."},
    {"tcp.dpdk_arguments", ConfigType::texts, "",
     "Arguments for DPDK's EAL, one each, such as --no-huge,-m,64,--no-pci for a virtual device without huge pages. "
     "For dpdk:DEVICE only."},
    {"tcp.address", ConfigType::text, "",
     "The device's IPv4 address with its prefix length, such as 10.0.0.2/24. If both this and tcp.address6 are empty: "
     "address and gateway of the interface. If the kernel also has the address, it leaves TCP there to the agent "
     "(needs Linux 6.6)."},
    {"tcp.gateway", ConfigType::text, "", "The gateway to other networks. Empty: other networks are not reached."},
    {"tcp.address6", ConfigType::text, "",
     "The device's IPv6 address with its prefix length, such as 2001:db8::2/64, beside tcp.address or alone. It is "
     "used one second after the start, if no other node of the link has it. Empty: no IPv6. Not for DPDK devices."},
    {"tcp.gateway6", ConfigType::text, "",
     "The gateway to other networks of IPv6, such as fe80::1. Empty: the router that advertises itself, with one core "
     "only (tcp.cores). none: other networks are not reached."},
    {"tcp.mtu", ConfigType::integer, "0", "The largest packet, if smaller than the device's. 0: the device's.", 0,
     65'535},
    {"tcp.congestion", ConfigType::text, "cubic", "Congestion control: cubic, new_reno, dctcp or timely."},
    {"tcp.congestion_allowed", ConfigType::texts, "cubic,new_reno",
     "What programs may choose for their connections by TCP_CONGESTION, beside tcp.congestion. Programs of root and of "
     "the agent's user may choose any."},
    {"tcp.ecn", ConfigType::text, "classic",
     "Explicit congestion notification. classic: connections with dctcp request it as in RFC 3168, and peers that "
     "request it get it. accurate: all connections also request accurate ECN (RFC 9768), and peers get it; not "
     "with tcp.slow_path = host."},
    {"tcp.cores", ConfigType::integer, "1",
     "Loops for connections, each on a core; the first is the agent's own. Addresses and ports decide which loop has a "
     "connection. More than 1 needs an interface of the kernel, or a DPDK device with as many queues.",
     1, 16},
    {"tcp.pin", ConfigType::texts, "",
     "The cores for the loops beyond the first, such as 2 or 4-7, one for each loop. Empty: any. agent.pin is for the "
     "first."},
    {"tcp.flows_max", ConfigType::integer, "65536",
     "Connections of all programs together, including those that are closing.", 16, 1 << 22},
    {"tcp.orphans_max", ConfigType::integer, "8192",
     "The part of tcp.flows_max for orphans: closed connections with unacknowledged data. Beyond it, the oldest "
     "orphan of the user with the most is reset; beyond three quarters of a program's connections, the program's "
     "oldest one.",
     16, 1 << 22},
    {"tcp.orphan_time", ConfigType::duration, "60s",
     "How long an orphan waits for its peer to acknowledge another segment before it is reset.", second_ns,
     3600 * second_ns},
    {"tcp.orphan_lifetime", ConfigType::duration, "10min",
     "How long an orphan lasts at most, even if its peer keeps acknowledging.", second_ns, 86'400 * second_ns},
    {"tcp.rto_min", ConfigType::duration, "200ms",
     "The shortest time after which data is retransmitted without any sign of its loss. It must be longer than peers "
     "delay acknowledgements: 40 ms for Linux and Offpath. Less suits networks where all peers acknowledge sooner.",
     millisecond_ns, 60 * second_ns},
    {"tcp.programs_max", ConfigType::integer, "256", "Programs with connections.", 1, 65'536},
    {"tcp.flows_of_program", ConfigType::integer, "4096", "Connections of one program.", 1, 1 << 20},
    {"tcp.memory_of_program", ConfigType::bytes, "8GiB",
     "A program's own memory for its connections. Only the part that it uses is occupied.", mebibyte, 64 * tebibyte},
    {"tcp.receive_memory_max", ConfigType::bytes, "16GiB",
     "Memory that the agent may fill with data from peers, of all programs: receive buffers, counted until their "
     "program has closed them, and for programs on other machines also the agent's copies of send buffers.",
     mebibyte, 64 * tebibyte},
    {"tcp.receive_memory_of_user", ConfigType::bytes, "64TiB",
     "The part of tcp.receive_memory_max for programs of one user.", mebibyte, 64 * tebibyte},
    {"tcp.slow_path", ConfigType::text, "agent",
     "The process that does handshakes, ARP, refusals and TIME-WAIT. agent: this agent. host: a process beside the "
     "programs (offpath slow-path), or this agent while that is absent."},
    {"tcp.trace_file", ConfigType::text, "",
     "File for the times at which frames reached the stages of TCP (offpath bench tcp --breakdown). Empty: none."},
    {"log.format", ConfigType::text, "text",
     "text, or json: each line is an object with time, level, process and message."},
    {"log.level", ConfigType::text, "info", "debug, info, warning, error or off. Read again on SIGHUP."},
};

constexpr ConfigKey plugin_keys[] = {
    {"plugin.name", ConfigType::text, "",
     "The name under which it is called: letters, digits, _ . -; unique. Required."},
    {"plugin.path", ConfigType::text, "",
     "The shared object, as an absolute path. It and every folder above it belong to root or the agent's user, and "
     "other users may not write to them. Required."},
    {"plugin.workers", ConfigType::integer, "1", "Processes that run its functions, one call at a time in each.", 1,
     256},
    {"plugin.memory", ConfigType::bytes, "1GiB",
     "The most private memory of a worker, and the most memory for the outputs of one call. Inputs do not count.",
     16 * mebibyte, 64 * tebibyte},
    {"plugin.deadline", ConfigType::duration, "60s",
     "How long a call may take, including the wait for a worker; after that its worker is killed. Callers may set a "
     "shorter deadline.",
     millisecond_ns, 7 * 86400 * second_ns},
    {"plugin.start_deadline", ConfigType::duration, "10s", "How long loading the plug-in may take.", millisecond_ns,
     3600 * second_ns},
    {"plugin.waiting_max", ConfigType::integer, "256",
     "Calls that may wait for a worker. Further calls fail with would_block.", 1, 65536},
    {"plugin.user", ConfigType::text, "",
     "User, by number or name, under which the workers run. The agent has to be started as root (CAP_SETUID, "
     "CAP_SETGID, CAP_KILL). Empty: the agent's own user."},
    {"plugin.nice", ConfigType::integer, "0", "The nice value of its workers.", 0, 19},
    {"plugin.cores", ConfigType::texts, "",
     "Cores that its workers may use, such as 2 or 4-7. Empty: all, even if agent.pin is set."},
};

constexpr ConfigKey pool_keys[] = {
    {"pool.name", ConfigType::text, "",
     "The pool with its options, as programs would name it. A sift pool needs wait=, or all members by name. "
     "Required."},
    {"pool.user", ConfigType::text, "", "Owner of the pool, by number or name. Empty: the agent's own user."},
};

constexpr ConfigKey trigger_keys[] = {
    {"trigger.pool", ConfigType::text, "", "The pool, as programs name it. Required."},
    {"trigger.row", ConfigType::text, "*", "Pattern of rows whose objects the function is called on."},
    {"trigger.column", ConfigType::text, "*", "Pattern of their columns."},
    {"trigger.plugin", ConfigType::text, "", "Name of a [[plugin]]. Required."},
    {"trigger.function", ConfigType::text, "", "One of its functions. Required."},
    {"trigger.result_column", ConfigType::text, "",
     "Column for the output, in the object's row. If there are several outputs, each has a column of its own, whose "
     "name ends in a dot and the output's name. Objects of such columns are never inputs of the trigger. Required."},
    {"trigger.every", ConfigType::duration, "0s",
     "If not 0, the function is called periodically, at this interval, without objects.", 0, 7 * 86400 * second_ns},
    {"trigger.result_row", ConfigType::text, "", "The row for the outputs of periodic calls."},
    {"trigger.queue", ConfigType::integer, "64",
     "Objects that may wait for their call; they stay in memory until then. Objects that arrive when the queue is full"
     " are left out and counted.",
     1, 65536},
    {"trigger.calls", ConfigType::integer, "4", "Calls that may run at a time.", 1, 256},
};

const ConfigList lists[] = {
    {"plugin",
     "functions of users that this agent runs ([guides/plugins.md](../guides/plugins.md)). Only plug-ins named here "
     "are loaded, and those that task.user_plugins permits.",
     plugin_keys},
    {"pool",
     "pools that exist from the start, on all members, so that programs name them without options "
     "([guides/pools.md](../guides/pools.md)).",
     pool_keys},
    {"host",
     "machines whose samples this agent requests from offpath-sampler "
     "([guides/monitoring.md](../guides/monitoring.md)).",
     host_keys()},
    {"source",
     "measurements of the agent's own machine ([guides/monitoring.md](../guides/monitoring.md)). The same keys as in "
     "the configuration of offpath-sampler.",
     source_keys()},
    {"alarm",
     "conditions that are reported after they have held for a while: limits of samples, or missing samples "
     "([guides/monitoring.md](../guides/monitoring.md)).",
     alarm_keys()},
    {"trigger",
     "functions that are called on objects as they arrive in a pool, or periodically "
     "([guides/pools.md](../guides/pools.md)).",
     trigger_keys},
    {"actuator",
     "limits of this machine that a function of an exchange may set ([guides/plugins.md](../guides/plugins.md)). "
     "Functions can set no other limits.",
     actuator_keys()},
    {"exchange",
     "records that agents send each other in rounds ([guides/monitoring.md](../guides/monitoring.md)); the same on all"
     " of them.",
     exchange_keys},
};

}  // namespace

std::span<const ConfigKey> agent_keys() noexcept { return keys_of_agent; }
std::span<const ConfigList> agent_lists() noexcept { return lists; }

}  // namespace offpath::agent
