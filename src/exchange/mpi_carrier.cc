#include "exchange/mpi_carrier.h"

#include <mpi.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "base/fd.h"

namespace offpath::exchange {

namespace {

constexpr int tag = 77;
constexpr std::size_t receives = 4;  // posted at a time, from any rank
// MPI sends small parcels at once, practically without a request; large ones are sent in place.
constexpr std::size_t persistent_bytes_min = 2 << 10, persistent_bytes_max = 64 << 10;
constexpr TimeNs watch_every_ns = 10 * millisecond_ns;

// Turns MPI's error codes into failures.
Status checked(int code, std::string_view call) {
  if (code == MPI_SUCCESS) return {};
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  return fail(Error::io, "{}: {}", call, std::string_view(text.data(), static_cast<std::size_t>(length)));
}

// A request that can be started repeatedly.
class Persistent {
 public:
  Persistent() = default;
  Persistent(const Persistent&) = delete;
  Persistent& operator=(const Persistent&) = delete;
  ~Persistent() { release(); }
  void release() {
    if (request == MPI_REQUEST_NULL) return;
    MPI_Request_free(&request);  // a running one ends by itself
    request = MPI_REQUEST_NULL;
  }
  MPI_Request request = MPI_REQUEST_NULL;
};

struct Outgoing {
  std::vector<std::byte> copy;  // the source of the persistent request
  std::size_t bytes = 0;        // the size for which it was made
  Persistent usual;
  MPI_Request single = MPI_REQUEST_NULL;
  SharedBytes kept;  // the source of a single request
  bool busy = false;
  SharedBytes next;  // the newest parcel that waits for the end of that one
  TimeNs next_deadline = 0;
};

struct Incoming {
  std::vector<std::byte> bytes;
  Persistent request;
};

struct Process {
  int pid = 0, node = 0;
  Fd pidfd{};
};

}  // namespace

// ---- the world

Result<MpiWorld> MpiWorld::begin(int* argc, char*** argv) {
  OFP_TRY(checked(MPI_Init(argc, argv), "MPI_Init"));
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  return MpiWorld();
}

MpiWorld::~MpiWorld() {
  if (began_) MPI_Finalize();
}

MemberIndex MpiWorld::rank() const {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return static_cast<MemberIndex>(rank);
}

std::size_t MpiWorld::size() const {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return static_cast<std::size_t>(size);
}

void MpiWorld::barrier(const std::function<void()>& meanwhile) const {
  MPI_Request all_here;
  MPI_Ibarrier(MPI_COMM_WORLD, &all_here);
  for (int here = 0; here == 0; MPI_Test(&all_here, &here, MPI_STATUS_IGNORE)) meanwhile();
}

double MpiWorld::largest(double mine) const {
  double most = mine;
  MPI_Allreduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return most;
}

namespace {

// The lowest rank that shares memory with this one represents their node.
int node_of_this_rank() {
  MPI_Comm node = MPI_COMM_NULL;
  int rank = 0, lowest = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node);
  MPI_Allreduce(&rank, &lowest, 1, MPI_INT, MPI_MIN, node);
  MPI_Comm_free(&node);
  return lowest;
}

std::vector<int> gathered(int mine, std::size_t size) {
  std::vector<int> all(size);
  MPI_Allgather(&mine, 1, MPI_INT, all.data(), 1, MPI_INT, MPI_COMM_WORLD);
  return all;
}

}  // namespace

std::vector<Place> MpiWorld::places() const {
  const std::vector<int> nodes = gathered(node_of_this_rank(), size());
  std::vector<Place> all;
  for (std::size_t i = 0; i < nodes.size(); ++i)
    all.push_back({fmt::format("rank{}", i), fmt::format("node{}", nodes[i]), {}});
  return all;
}

// ---- point to point

struct MpiCarrier::State {
  MPI_Comm communicator = MPI_COMM_NULL;
  std::vector<Incoming> incoming{receives};
  std::vector<Outgoing> outgoing;
  std::vector<Process> processes;
  std::vector<MPI_Request> requests;  // reused by poll
  std::vector<int> done;
  std::vector<MPI_Status> statuses;
  MemberIndex self = 0;
  TimeNs watched_at = 0;
  std::uint64_t left_out = 0;
  Status ended;
  void start_next(MemberIndex to);
  void note_sent(std::size_t to, int code);
};

MpiCarrier::MpiCarrier(std::unique_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<MpiCarrier>> MpiCarrier::make(const MpiWorld& world, std::uint64_t parcel_bytes) {
  if (parcel_bytes > INT32_MAX)
    return fail(Error::too_large, "parcels of {} bytes, MPI's messages have {} at most", parcel_bytes, INT32_MAX);
  auto state = std::make_unique<State>();
  OFP_TRY(checked(MPI_Comm_dup(MPI_COMM_WORLD, &state->communicator), "MPI_Comm_dup"));
  MPI_Comm_set_errhandler(state->communicator, MPI_ERRORS_RETURN);
  state->self = world.rank();
  state->outgoing = std::vector<Outgoing>(world.size());
  const int node = node_of_this_rank();
  const std::vector<int> nodes = gathered(node, world.size()),
                         pids = gathered(static_cast<int>(getpid()), world.size());
  state->processes = std::vector<Process>(world.size());
  for (std::size_t i = 0; i < world.size(); ++i) {
    state->processes[i].pid = pids[i];
    state->processes[i].node = nodes[i];
    if (i != state->self && nodes[i] == node)
      state->processes[i].pidfd = Fd(static_cast<int>(syscall(SYS_pidfd_open, pids[i], 0)));
  }
  for (Incoming& each : state->incoming) {
    each.bytes.resize(parcel_bytes);
    OFP_TRY(checked(MPI_Recv_init(each.bytes.data(), static_cast<int>(parcel_bytes), MPI_BYTE, MPI_ANY_SOURCE, tag,
                                  state->communicator, &each.request.request),
                    "MPI_Recv_init"));
    OFP_TRY(checked(MPI_Start(&each.request.request), "MPI_Start"));
  }
  return std::unique_ptr<MpiCarrier>(new MpiCarrier(std::move(state)));
}

MpiCarrier::~MpiCarrier() {
  for (Incoming& each : state_->incoming) {
    MPI_Cancel(&each.request.request);
    MPI_Wait(&each.request.request, MPI_STATUS_IGNORE);
  }
  // Memory that is being sent stays until MPI has read it.
  for (Outgoing& each : state_->outgoing) {
    if (!each.busy) continue;
    static std::vector<std::pair<std::vector<std::byte>, SharedBytes>> unsent;
    if (each.single != MPI_REQUEST_NULL) MPI_Request_free(&each.single);
    each.usual.release();
    unsent.emplace_back(std::move(each.copy), std::move(each.kept));
  }
}

namespace {

void end_if_sent(Outgoing& out) {
  int ended = 0;
  MPI_Request& request = out.single != MPI_REQUEST_NULL ? out.single : out.usual.request;
  if (MPI_Test(&request, &ended, MPI_STATUS_IGNORE) != MPI_SUCCESS || ended == 0) return;
  out.busy = false;
  out.kept.reset();
}

}  // namespace

std::uint64_t MpiCarrier::left_out() const noexcept { return state_->left_out; }

// A rank that does not receive gets nothing more until it has taken the current parcel; then it gets the newest one.
void MpiCarrier::send(MemberIndex to, SharedBytes parcel, TimeNs deadline, TimeNs) {
  Outgoing& out = state_->outgoing[to];
  if (out.busy) end_if_sent(out);  // it may have ended since the last poll
  if (out.next || !state_->ended) ++state_->left_out;
  if (!state_->ended) return;
  out.next = std::move(parcel);
  out.next_deadline = deadline;
  if (!out.busy) state_->start_next(to);
}

void MpiCarrier::State::start_next(MemberIndex to) {
  Outgoing& out = outgoing[to];
  const SharedBytes parcel = std::move(out.next);
  const int rank = static_cast<int>(to), bytes = static_cast<int>(parcel->size());
  int code = MPI_SUCCESS;
  if (parcel->size() < persistent_bytes_min || parcel->size() > persistent_bytes_max) {
    out.kept = parcel;
    code = MPI_Isend(out.kept->data(), bytes, MPI_BYTE, rank, tag, communicator, &out.single);
  } else {
    if (out.bytes != parcel->size() || out.usual.request == MPI_REQUEST_NULL) {
      out.usual.release();
      out.copy.resize(parcel->size());
      out.bytes = parcel->size();
      code = MPI_Send_init(out.copy.data(), bytes, MPI_BYTE, rank, tag, communicator, &out.usual.request);
    }
    std::memcpy(out.copy.data(), parcel->data(), parcel->size());
    if (code == MPI_SUCCESS) code = MPI_Start(&out.usual.request);
  }
  if (const Status sent = checked(code, "sending"); !sent)
    ended = fail(Error::peer_lost, "rank {}: {}", to, sent.error().message);
  else
    out.busy = true;
  // A small send has mostly ended already and need not be tested; testing a large one would cost this rank its core
  // where ranks share one.
  if (out.busy && parcel->size() < persistent_bytes_min) end_if_sent(out);
}

// A single request was freed by its end; the persistent one can be started again.
void MpiCarrier::State::note_sent(std::size_t to, int code) {
  Outgoing& out = outgoing[to];
  out.busy = false;
  out.single = MPI_REQUEST_NULL;
  out.kept.reset();
  if (code != MPI_SUCCESS)
    ended = fail(Error::peer_lost, "rank {} no longer receives: {}", to, checked(code, "MPI_Testsome").error().message);
}

Status MpiCarrier::poll(TimeNs now, const Take& take) {
  State& state = *state_;
  OFP_TRY(state.ended);
  if (now - state.watched_at >= watch_every_ns) {
    state.watched_at = now;
    for (std::size_t i = 0; i < state.processes.size(); ++i) {
      pollfd watched{state.processes[i].pidfd.get(), POLLIN, 0};
      if (watched.fd < 0 || ::poll(&watched, 1, 0) <= 0) continue;
      state.ended = fail(Error::peer_lost, "rank {} (process {}) is dead, and MPI cannot go on without it", i,
                         state.processes[i].pid);
      return state.ended;
    }
  }
  state.requests.clear();
  for (const Incoming& each : state.incoming) state.requests.push_back(each.request.request);
  for (const Outgoing& each : state.outgoing)
    state.requests.push_back(!each.busy                        ? MPI_REQUEST_NULL
                             : each.single != MPI_REQUEST_NULL ? each.single
                                                               : each.usual.request);
  const int count = static_cast<int>(state.requests.size());
  state.done.resize(state.requests.size());
  state.statuses.resize(state.requests.size());
  int ended = 0, code = MPI_SUCCESS;
  // A test that finds nothing moves messages, but does not look at them again before it returns: the next test finds
  // them.
  for (int look = 0; look < 2 && code == MPI_SUCCESS && (ended == 0 || ended == MPI_UNDEFINED); ++look)
    code = MPI_Testsome(count, state.requests.data(), &ended, state.done.data(), state.statuses.data());
  if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) {
    state.ended = checked(code, "MPI_Testsome");
    return state.ended;
  }
  if (ended == MPI_UNDEFINED) ended = 0;
  const std::span<const int> done(state.done.data(), static_cast<std::size_t>(ended));
  const bool with_errors = code == MPI_ERR_IN_STATUS;
  // Ends of sends come first: taking a parcel may send the next one from the same place.
  for (std::size_t i = 0; i < done.size(); ++i)
    if (static_cast<std::size_t>(done[i]) >= receives)
      state.note_sent(static_cast<std::size_t>(done[i]) - receives,
                      with_errors ? state.statuses[i].MPI_ERROR : MPI_SUCCESS);
  for (std::size_t i = 0; i < done.size(); ++i) {
    if (static_cast<std::size_t>(done[i]) >= receives) continue;
    const MPI_Status& status = state.statuses[i];
    if (with_errors && status.MPI_ERROR != MPI_SUCCESS) {
      state.ended = checked(status.MPI_ERROR, fmt::format("receiving from rank {}", status.MPI_SOURCE));
      continue;
    }
    Incoming& in = state.incoming[static_cast<std::size_t>(done[i])];
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    auto parcel = std::make_shared<const std::vector<std::byte>>(in.bytes.begin(), in.bytes.begin() + bytes);
    if (const Status again = checked(MPI_Start(&in.request.request), "MPI_Start"); !again) state.ended = again;
    take(static_cast<MemberIndex>(status.MPI_SOURCE), std::move(parcel));
  }
  for (MemberIndex to = 0; to < state.outgoing.size(); ++to) {
    Outgoing& out = state.outgoing[to];
    if (!out.next || out.busy || !state.ended) continue;
    if (now < out.next_deadline) {
      state.start_next(to);
    } else {
      out.next.reset();
      ++state.left_out;
    }
  }
  return state.ended;
}

// ---- collectives

struct MpiCollectives::State {
  struct Level {
    MPI_Comm communicator = MPI_COMM_NULL;
    bool is_top = false;
    int rank = 0, size = 0;
    std::vector<int> bytes, offsets;  // bytes of each of its ranks
  };
  std::vector<Level> levels;  // in which this rank takes part, from below
  std::uint64_t record_bytes = 0;
  bool variable = false;
  std::vector<std::byte> own, all;
};

MpiCollectives::MpiCollectives(std::unique_ptr<State> state) : state_(std::move(state)) {}
MpiCollectives::MpiCollectives(MpiCollectives&&) noexcept = default;
MpiCollectives::~MpiCollectives() {
  if (!state_) return;
  for (State::Level& each : state_->levels) MPI_Comm_free(&each.communicator);
}

Result<MpiCollectives> MpiCollectives::make(const MpiWorld& world, const Topology& topology, std::uint64_t record_bytes,
                                            bool variable) {
  auto state = std::make_unique<State>();
  state->record_bytes = record_bytes;
  state->variable = variable;
  const MemberIndex self = world.rank();
  const auto up = [](MemberIndex) { return true; };
  // The highest node that this rank leads so far; at each level, those whose nodes have one parent make a communicator.
  NodeIndex at = topology.leaf(self);
  const std::uint32_t levels = topology.node(topology.root()).level;
  bool takes_part = true;
  for (std::uint32_t level = 1; level <= levels; ++level) {
    const NodeIndex parent = takes_part ? topology.node(at).parent : nobody;
    const bool joins = parent != nobody && topology.node(parent).level == level;
    State::Level made;
    OFP_TRY(checked(MPI_Comm_split(MPI_COMM_WORLD, joins ? static_cast<int>(parent) : MPI_UNDEFINED,
                                   static_cast<int>(topology.position(self)), &made.communicator),
                    "MPI_Comm_split"));
    if (!joins) continue;
    made.is_top = parent == topology.root();
    MPI_Comm_rank(made.communicator, &made.rank);
    MPI_Comm_size(made.communicator, &made.size);
    int offset = 0;
    for (const NodeIndex child : topology.node(parent).children) {
      const Node& node = topology.node(child);
      made.bytes.push_back(static_cast<int>((node.last - node.first) * record_bytes));
      made.offsets.push_back(offset);
      offset += made.bytes.back();
    }
    state->levels.push_back(std::move(made));
    takes_part = topology.leader(parent, up) == self;
    at = parent;
  }
  state->own.resize(record_bytes);
  state->all.reserve(record_bytes * topology.size());
  return MpiCollectives(std::move(state));
}

Result<Bytes> MpiCollectives::exchange(Bytes record) {
  State& state = *state_;
  if (record.size() != state.record_bytes)
    return fail(Error::invalid, "a record of {} bytes, but {} were announced", record.size(), state.record_bytes);
  state.own.assign(record.begin(), record.end());
  for (State::Level& level : state.levels) {
    const int mine = static_cast<int>(state.own.size());
    if (state.variable) {  // the sizes of the others' records are unknown
      MPI_Allgather(&mine, 1, MPI_INT, level.bytes.data(), 1, MPI_INT, level.communicator);
      int offset = 0;
      for (int i = 0; i < level.size; ++i) {
        level.offsets[static_cast<std::size_t>(i)] = offset;
        offset += level.bytes[static_cast<std::size_t>(i)];
      }
    }
    const bool equal =
        !state.variable && std::ranges::adjacent_find(level.bytes, std::not_equal_to<>()) == level.bytes.end();
    const bool receives_all = level.is_top || level.rank == 0;
    if (receives_all) state.all.resize(static_cast<std::size_t>(level.offsets.back() + level.bytes.back()));
    int code = MPI_SUCCESS;
    if (level.is_top) {
      code = equal
                 ? MPI_Allgather(state.own.data(), mine, MPI_BYTE, state.all.data(), mine, MPI_BYTE, level.communicator)
                 : MPI_Allgatherv(state.own.data(), mine, MPI_BYTE, state.all.data(), level.bytes.data(),
                                  level.offsets.data(), MPI_BYTE, level.communicator);
    } else {
      code = equal
                 ? MPI_Gather(state.own.data(), mine, MPI_BYTE, state.all.data(), mine, MPI_BYTE, 0, level.communicator)
                 : MPI_Gatherv(state.own.data(), mine, MPI_BYTE, state.all.data(), level.bytes.data(),
                               level.offsets.data(), MPI_BYTE, 0, level.communicator);
    }
    OFP_TRY(checked(code, "a collective"));
    if (receives_all) std::swap(state.own, state.all);
  }
  return Bytes(state.own);
}

}  // namespace offpath::exchange
