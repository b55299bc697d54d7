// Which settings there are: their types, what they are without, their bounds, and what is said about them.
#include "agent/config/exchange_settings.h"
#include "agent/config/settings.h"

namespace offpath::agent {

namespace {

constexpr std::int64_t mebibyte = 1 << 20;
constexpr std::int64_t tebibyte = 1LL << 40;

constexpr ConfigKey keys[] = {
    {"agent.name", ConfigType::text, "", "What programs and people see. Empty: the name of the machine."},
    {"agent.listen", ConfigType::texts, "",
     "Addresses programs connect to: unix:/path, tcp:HOST:PORT, tls:HOST:PORT, verbs:HOST:PORT (RDMA), doca:HOST:PORT "
     "(DOCA DMA) ([::1] for IPv6; "
     "port 0 takes a free one). "
     "Empty: unix:$XDG_RUNTIME_DIR/offpath/agent.sock, for root unix:/run/offpath/agent.sock."},
    {"agent.http", ConfigType::text, "",
     "Where /metrics, /status.json, /healthz and the status page are served: HOST:PORT or unix:/path. Beyond this "
     "machine it wants security.insecure_network. Empty: if agent.listen is empty as well, at http.sock beside the "
     "agent's socket, else nowhere."},
    {"agent.http_hosts", ConfigType::texts, "",
     "Names besides localhost and this machine's by which agent.http is reached; addresses need none. A request to "
     "another "
     "name is refused."},
    {"agent.pin", ConfigType::integer, "-1", "The core the loop runs on. -1: any.", -1, 4095},
    {"agent.spill_directory", ConfigType::text, "",
     "Directory for objects of pools with spill=on or spill=durable ([guides/pools.md](../guides/pools.md)): an "
     "absolute path, made if "
     "its parent is there, "
     "of this agent's user and open to nobody else. {index} stands for group.index. Empty: there are no such pools."},
    {"agent.profile", ConfigType::text, "none",
     "Makes this agent as slow as a device: none, or bluefield2 (bandwidth and latency of its link, and a cgroup limit "
     "for its processor). For experiments."},
    {"loop.spin", ConfigType::duration, "1ms",
     "For how long the loop goes on looking after the last work, before it sleeps and has to be woken by a system "
     "call. After fewer than 16 rounds of work since it slept: 100 us at most.",
     0, 60 * second_ns},
    {"loop.pull_slice", ConfigType::bytes, "512KiB",
     "How much of one batch is read before the other channels are looked at again.", 4096, 1 << 30},
    {"loop.asked_slice", ConfigType::bytes, "2MiB",
     "The same where the program has to answer each read (tcp, tls): larger, because a slice is a request and an "
     "answer.",
     4096, 1 << 30},
    {"jobs.threads", ConfigType::integer, "2",
     "Threads for work that would hold up the loop, such as building Arrow "
     "arrays or writing files.",
     1, 256},
    {"jobs.queue_max", ConfigType::integer, "64", "Jobs handed to these threads at a time; others wait in the loop.", 1,
     65536},
    {"queries.threads", ConfigType::integer, "2", "Threads that compute one query's answer.", 1, 256},
    {"queries.running_max", ConfigType::integer, "1", "Queries that compute at a time; each takes one of jobs.threads.",
     1, 256},
    {"queries.memory_max", ConfigType::bytes, "512MiB",
     "Memory for a part of an answer; and all that Arrow takes for one user's queries.", mebibyte, tebibyte},
    {"queries.open_max", ConfigType::integer, "16", "Answers that one program may read at a time.", 1, 65536},
    {"flight.listen", ConfigType::text, "",
     "Where clients of Arrow Flight reach the pools of the agent's own user: tcp:HOST:PORT or tls:HOST:PORT, port 0 "
     "for any. "
     "Empty: nowhere."},
    {"flight.token_file", ConfigType::text, "",
     "File with the token that every call brings as \"authorization: Bearer TOKEN\": at least 16 printable characters, "
     "readable "
     "by its owner alone. Read again on SIGHUP."},
    {"flight.tls_certificate", ConfigType::text, "", "PEM file with the certificate of a tls endpoint of Flight."},
    {"flight.tls_key", ConfigType::text, "",
     "PEM file with the private key of that certificate, readable by its owner alone."},
    {"flight.queries_max", ConfigType::integer, "2", "Answers that Flight's clients read at a time.", 1, 1024},
    {"memory.bytes_max", ConfigType::bytes, "8GiB", "Memory for frames, those promised to programs as credit included.",
     mebibyte, 64 * tebibyte},
    {"memory.user_bytes_max", ConfigType::bytes, "64TiB",
     "Of memory.bytes_max, what frames of one user may take, those promised as credit included.", mebibyte,
     64 * tebibyte},
    {"memory.window", ConfigType::bytes, "256MiB", "Credit an open stream is given in advance, if there is room.", 4096,
     tebibyte},
    {"memory.cached_max", ConfigType::bytes, "1GiB",
     "Memory kept for frames to come after others have left. It is in addition to memory.bytes_max.", 0, tebibyte},
    {"memory.prepared_max", ConfigType::bytes, "16MiB",
     "The largest buffer that a job makes for a stream's next frame before that frame is asked for. 0: none.", 0,
     tebibyte},
    {"memory.huge_pages", ConfigType::boolean, "true", "Ask for huge pages for buffers of 2 MiB and more."},
    {"limits.channels_max", ConfigType::integer, "4096", "Programs connected at the same time.", 1, 1 << 20},
    {"limits.handshakes_max", ConfigType::integer, "64",
     "Connections to one listener that are still introducing themselves, for 5 s at most. A user, or a network address "
     "(IPv6: a /64), has a quarter of them; beyond it, its oldest makes room if it is 200 ms old, or the new one is "
     "told "
     "to come again.",
     1, 65536},
    {"limits.user_channels_max", ConfigType::integer, "4096", "Programs of one user connected at the same time.", 1,
     1 << 20},
    {"limits.streams_max", ConfigType::integer, "65536", "Open streams of all programs together.", 1, 1 << 24},
    {"limits.user_streams_max", ConfigType::integer, "65536", "Open streams of one user's programs together.", 1,
     1 << 24},
    {"limits.user_pools_max", ConfigType::integer, "16384",
     "Pools of one user, on each member that knows them. Empty ones that nobody uses make room for others.", 1,
     1 << 24},
    {"limits.user_steps_max", ConfigType::integer, "262144",
     "Ends of steps of one user's streams that wait for other ranks; that of each rank counts.", 1, 1 << 28},
    {"limits.segments_max", ConfigType::integer, "4096", "Shared segments of one program.", 1, 1 << 20},
    {"limits.segment_bytes_max", ConfigType::bytes, "64GiB", "Bytes of all shared segments of one program together.",
     mebibyte, 64 * tebibyte},
    {"limits.silence", ConfigType::duration, "5s",
     "For how long a program on another machine (tcp, tls, verbs, doca) may give no answer, or the agent to the "
     "program, until "
     "each side takes the other for gone: a machine that was switched off, a network that was cut. Whole seconds.",
     wire::silence_ms_min * millisecond_ns, wire::silence_ms_max * millisecond_ns},
    {"task.resident_max", ConfigType::bytes, "1GiB",
     "Memory that inputs and outputs of one session of tasks may take between them.", 4096, tebibyte},
    {"task.messages_max", ConfigType::bytes, "1GiB",
     "Memory that messages between functions may take which nobody has received yet "
     "([guides/tasks.md](../guides/tasks.md)). 256MiB of it "
     "may be of one lane; 1MiB a lane has in any case.",
     mebibyte, tebibyte},
    {"task.user_plugins", ConfigType::text, "off",
     "Whether programs may have functions of their own run: \"off\", or \"own\", a shared object that a program names "
     "is run by workers under its own user "
     "([guides/tasks.md](../guides/tasks.md)). For programs that come by a Unix socket; users other than the agent's "
     "take an agent that "
     "is started as root."},
    {"task.user_plugins_max", ConfigType::integer, "4", "Such shared objects of one user at a time.", 1, 256},
    {"task.user_workers", ConfigType::integer, "2", "Processes that run the functions of each.", 1, 256},
    {"task.user_memory", ConfigType::bytes, "1GiB", "As plugin.memory, of each.", mebibyte, tebibyte},
    {"task.user_deadline", ConfigType::duration, "60s", "As plugin.deadline, of each.", millisecond_ns,
     30 * 24 * 3600 * second_ns},
    {"limits.waiting_max", ConfigType::integer, "65536",
     "Requests that wait for objects, here or on other members, computations and listings included.", 1, 1 << 24},
    {"limits.user_waiting_max", ConfigType::integer, "0",
     "Of limits.waiting_max, requests of one user, and the same share of the 64 MiB that their keys and arguments "
     "take. "
     "0: seven eighths.",
     0, 1 << 24},
    {"limits.frames_max", ConfigType::integer, "0",
     "Frames in memory at the same time: each is a mapping and a descriptor; those of at most 4096 bytes share slabs, "
     "of which each counts as one frame and holds 1024. 0: three quarters of what the kernel lets the agent have "
     "(sysctl vm.max_map_count, LimitNOFILE); the rest is for programs' segments and the agent itself.",
     0, 1 << 30},
    {"limits.user_frames_max", ConfigType::integer, "0",
     "Of limits.frames_max, frames of one user. 0: seven eighths of them.", 0, 1 << 30},
    {"limits.user_descriptors_max", ConfigType::integer, "0",
     "Descriptors in the agent by programs of one user: a connection is one, and so is each file or socket that they "
     "hand over until it is closed. "
     "0: seven eighths of what programs have together, which is a third of what frames leave of LimitNOFILE.",
     0, 1 << 30},
    {"limits.user_mappings_max", ConfigType::integer, "0",
     "Shared segments of one user's programs on this machine that the agent has mapped; each program has one, and "
     "those it allocates. "
     "0: seven eighths of what programs have together, which is three quarters of what frames leave of "
     "vm.max_map_count.",
     0, 1 << 30},
    {"limits.leases_max", ConfigType::integer, "65536", "Frames one program may hold mapped.", 1, 1 << 24},
    {"group.members", ConfigType::texts, "",
     "Addresses of agents that form a group with this one; its own may be among them, so that all can have the same "
     "list. "
     "Each is tried until it answers."},
    {"group.join", ConfigType::texts, "",
     "The address of one running member, or of several: the group is joined there, whoever else is in it."},
    {"group.from_launcher", ConfigType::boolean, "false",
     "All agents that one launcher started together form a group: it exchanges their addresses (mpirun of MPICH and "
     "Intel MPI, "
     "srun --mpi=pmi2)."},
    {"group.address", ConfigType::text, "",
     "Where other members reach this one. Empty: the first of agent.listen that is not unix, else the first; an "
     "address "
     "that stands for all of the machine's is told with the machine's name."},
    {"group.index", ConfigType::integer, "-1",
     "Which of its machine's agents this one is: what {index} stands for in agent.name, agent.listen and agent.http. "
     "-1: the local rank where MPI or Slurm tell one, else 0.",
     -1, 65535},
    {"group.dead_after", ConfigType::duration, "5s",
     "How long after a member's last sign of life the others hold it dead at the latest, and what was asked of it "
     "fails. "
     "The same for all members.",
     500 * millisecond_ns, 3600 * second_ns},
    {"group.tls_ca", ConfigType::text, "",
     "PEM file with the certificate authority of the other members, for tls addresses."},
    {"sampling.interval", ConfigType::duration, "1s",
     "How often hosts ([[host]]), this machine's own sources ([[source]]) and gauges of programs are sampled.",
     100 * microsecond_ns, 3600 * second_ns},
    {"sampling.deadline", ConfigType::duration, "1s",
     "How long a sample may take, lost datagrams included; a host that has not answered for three of these and three "
     "intervals has no values.",
     millisecond_ns, 3600 * second_ns},
    {"sampling.key_file", ConfigType::text, "",
     "The key shared with the samplers of all hosts: a file of 16 to 4096 bytes that nobody else may read. Needed for "
     "[[host]]."},
    {"alarms.hook", ConfigType::texts, "",
     "A program and its arguments, run for each alarm ([[alarm]]) that is raised or cleared; what it is about stands "
     "in OFFPATH_ALARM_* "
     "of its environment. No shell is between."},
    {"alarms.hook_limit", ConfigType::duration, "10s", "After this it is killed, and all that it started.",
     millisecond_ns, 3600 * second_ns},
    {"security.allow_uids", ConfigType::texts, "",
     "Users, by number or name, who may connect to Unix sockets besides root and the agent's own user."},
    {"security.key_file", ConfigType::text, "",
     "The key shared with programs that connect by tcp, tls, verbs or doca: a file of 16 to 4096 bytes that nobody "
     "else may read. "
     "Needed for such addresses. Read again on SIGHUP, as are the next three."},
    {"security.old_key_files", ConfigType::texts, "",
     "Keys that are good enough besides key_file, while programs change over to that one "
     "(docs/operate/threat-model.md). The "
     "log "
     "names who knows no other."},
    {"security.tls_certificate", ConfigType::text, "",
     "PEM file with the agent's certificate chain, for tls addresses."},
    {"security.tls_key", ConfigType::text, "",
     "PEM file with the private key of the certificate, readable by its owner alone."},
    {"security.insecure_network", ConfigType::boolean, "false",
     "Allow what others on the network could read or change: tcp, verbs and doca addresses and HTTP beyond this "
     "machine."},
    {"security.keep_ptrace", ConfigType::boolean, "true",
     "If started with CAP_SYS_PTRACE (as root, or given by systemd), keep it, so that arrays of every allowed user's "
     "program are read where they lie. Without it such programs copy through shared memory. Every other capability is "
     "given up in any case, but for what plugin.user takes."},
    {"security.sandbox", ConfigType::text, "on",
     "Whether the kernel refuses to the agent, its workers and what they start all system calls that they do not need, "
     "and gives workers "
     "namespaces of their own where it allows that "
     "([operate/threat-model.md](../operate/threat-model.md#the-sandbox)): on; log, by which "
     "calls are not refused but "
     "written to the kernel's log, to try it; or off."},
    {"security.force_staging", ConfigType::boolean, "false",
     "Read no program's memory directly, not even where it is permitted; programs copy through shared memory."},
    {"tcp.device", ConfigType::text, "",
     "The network interface of programs' TCP connections ([guides/sockets.md](../guides/sockets.md)), whose TCP is "
     "then this agent's alone: an "
     "interface "
     "of the kernel's; tap:NAME, a TAP device; or dpdk:DEVICE, one of DPDK's "
     "([guides/bluefield.md](../guides/bluefield.md#tcp-over-dpdk)), such as "
     "dpdk:0000:03:00.0. Takes CAP_NET_RAW, or "
     "CAP_NET_ADMIN for TAP, until it is open, and CAP_BPF if the kernel has the address, too. Empty: there are none."},
    {"tcp.dpdk_arguments", ConfigType::texts, "",
     "Words for DPDK's EAL, one each, such as --no-huge,-m,64,--no-pci for a virtual device without huge pages. For "
     "dpdk:DEVICE alone."},
    {"tcp.address", ConfigType::text, "",
     "The device's IPv4 address with the length of its network, such as 10.0.0.2/24. Empty: that of the interface, and "
     "its gateway. If the kernel has it, too, TCP to it "
     "is the agent's and the rest the kernel's (Linux 6.6)."},
    {"tcp.gateway", ConfigType::text, "", "Where other networks are reached. Empty: they are not."},
    {"tcp.mtu", ConfigType::integer, "0",
     "The largest packet, if it is to be smaller than the device's. 0: the device's.", 0, 65'535},
    {"tcp.congestion", ConfigType::text, "cubic", "Congestion control: cubic, new_reno, dctcp or timely."},
    {"tcp.cores", ConfigType::integer, "1",
     "Loops for connections, each on a core of its own; which of them has a connection, its addresses and ports "
     "decide. The first is the agent's own loop. "
     "More than 1 want a network interface, not a TAP device.",
     1, 16},
    {"tcp.pin", ConfigType::texts, "",
     "The cores that loops beyond the first run on, such as 2 or 4-7: as many as there are. Empty: any. The first: "
     "agent.pin."},
    {"tcp.flows_max", ConfigType::integer, "65536",
     "Connections of all programs together, those that are ending included.", 16, 1 << 22},
    {"tcp.orphans_max", ConfigType::integer, "8192",
     "Of these, those that their programs have closed and whose peers have not taken or acknowledged all: beyond it "
     "the oldest of the user that has most are reset; beyond three quarters of a program's connections, its oldest.",
     16, 1 << 22},
    {"tcp.orphan_time", ConfigType::duration, "60s",
     "How long one of them waits for its peer to acknowledge a segment more; then it is reset.", second_ns,
     3600 * second_ns},
    {"tcp.orphan_lifetime", ConfigType::duration, "10min",
     "How long one of them lasts at most, however its peer takes what is left.", second_ns, 86'400 * second_ns},
    {"tcp.programs_max", ConfigType::integer, "256", "Programs with connections.", 1, 65'536},
    {"tcp.flows_of_program", ConfigType::integer, "4096", "Connections of one program.", 1, 65'536},
    {"tcp.memory_of_program", ConfigType::bytes, "8GiB",
     "Its own memory in which its connections lie; it takes what it uses of it.", mebibyte, 64 * tebibyte},
    {"tcp.receive_memory_max", ConfigType::bytes, "16GiB",
     "Of the memory of all programs, what the agent may write what peers send to: the receive buffers of connections, "
     "counted until their program has closed.",
     mebibyte, 64 * tebibyte},
    {"tcp.receive_memory_of_user", ConfigType::bytes, "64TiB",
     "Of tcp.receive_memory_max, what programs of one user may have.", mebibyte, 64 * tebibyte},
    {"tcp.slow_path", ConfigType::text, "agent",
     "Who does handshakes, ARP, refusals and TIME-WAIT: agent, or host: a process beside the programs (offpath "
     "slow-path), and the agent "
     "whenever there is none."},
    {"tcp.trace_file", ConfigType::text, "",
     "A file for the times at which stages of TCP were reached (offpath bench tcp --breakdown). Empty: none."},
    {"log.level", ConfigType::text, "info", "debug, info, warning, error or off. Read again on SIGHUP."},
};

constexpr ConfigKey plugin_keys[] = {
    {"plugin.name", ConfigType::text, "",
     "What calls name it by: letters, digits, _ . -, each name once. Has to be there."},
    {"plugin.path", ConfigType::text, "",
     "The shared object, absolute. It and every folder above belong to root or the agent's user, and nobody else may "
     "write to "
     "them. Has to be there."},
    {"plugin.workers", ConfigType::integer, "1", "Processes that run its functions, one call at a time in each.", 1,
     256},
    {"plugin.memory", ConfigType::bytes, "1GiB",
     "Private memory of a worker at most; and as much for the outputs of one call. What inputs take does not count.",
     16 * mebibyte, 64 * tebibyte},
    {"plugin.deadline", ConfigType::duration, "60s",
     "How long a call may take, waiting for a worker included; callers may ask for less. Then its worker is killed.",
     millisecond_ns, 7 * 86400 * second_ns},
    {"plugin.start_deadline", ConfigType::duration, "10s", "How long loading it may take.", millisecond_ns,
     3600 * second_ns},
    {"plugin.waiting_max", ConfigType::integer, "256", "Calls that may wait for a worker. More would block.", 1, 65536},
    {"plugin.user", ConfigType::text, "",
     "User, by number or name, whose rights the workers have: for an agent that is started as root (CAP_SETUID, "
     "CAP_SETGID, "
     "CAP_KILL). Empty: the agent's own."},
    {"plugin.nice", ConfigType::integer, "0", "How much its workers stand back for others, as nice does.", 0, 19},
    {"plugin.cores", ConfigType::texts, "",
     "Cores its workers may use, such as 2 or 4-7. Empty: all, also if agent.pin is set."},
};

constexpr ConfigKey pool_keys[] = {
    {"pool.name", ConfigType::text, "",
     "The pool with its options, as programs would name it. A sift pool has wait=, or all members by name. Has to be "
     "there."},
    {"pool.user", ConfigType::text, "", "Whose it is, by number or name. Empty: the agent's own user's."},
};

constexpr ConfigKey trigger_keys[] = {
    {"trigger.pool", ConfigType::text, "", "The pool, as programs name it. Has to be there."},
    {"trigger.row", ConfigType::text, "*", "Pattern of rows whose objects the function is called on."},
    {"trigger.column", ConfigType::text, "*", "Pattern of their columns."},
    {"trigger.plugin", ConfigType::text, "", "Name of a [[plugin]]. Has to be there."},
    {"trigger.function", ConfigType::text, "", "One of its functions. Has to be there."},
    {"trigger.result_column", ConfigType::text, "",
     "Column under which an output is put, in the object's row; several outputs have . and their own names behind it. "
     "Objects of such "
     "columns are never the trigger's inputs. Has to be there."},
    {"trigger.every", ConfigType::duration, "0s",
     "Not 0: the function is called without objects, again and again after so long.", 0, 7 * 86400 * second_ns},
    {"trigger.result_row", ConfigType::text, "", "The row of such calls' outputs."},
    {"trigger.queue", ConfigType::integer, "64",
     "Objects that may wait for their call; they stay in memory until then. What comes when it is full is left out, "
     "and counted.",
     1, 65536},
    {"trigger.calls", ConfigType::integer, "4", "Calls under way at a time.", 1, 256},
};

const ConfigList lists[] = {
    {"plugin",
     "functions of users that this agent runs ([guides/plugins.md](../guides/plugins.md)). Nothing that is not named "
     "here is ever loaded, "
     "but what task.user_plugins permits.",
     plugin_keys},
    {"pool",
     "pools that are there from the start, on all members, so that programs name them without options "
     "([guides/pools.md](../guides/pools.md)).",
     pool_keys},
    {"host",
     "machines whose numbers this agent asks offpath-sampler for ([guides/monitoring.md](../guides/monitoring.md)).",
     host_keys()},
    {"source",
     "numbers of the machine that the agent itself runs on ([guides/monitoring.md](../guides/monitoring.md)). The same "
     "in the configuration "
     "of offpath-sampler.",
     source_keys()},
    {"alarm",
     "what is told when it is so for a while: limits of samples, or their absence "
     "([guides/monitoring.md](../guides/monitoring.md)).",
     alarm_keys()},
    {"trigger",
     "functions that are called on objects as they come into a pool, or again and again "
     "([guides/pools.md](../guides/pools.md)).",
     trigger_keys},
    {"exchange",
     "what this agent and others tell each other, round by round ([guides/monitoring.md](../guides/monitoring.md)); "
     "the same on all of "
     "them.",
     exchange_keys},
};

}  // namespace

std::span<const ConfigKey> agent_keys() noexcept { return keys; }
std::span<const ConfigList> agent_lists() noexcept { return lists; }

}  // namespace offpath::agent
