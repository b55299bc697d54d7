#include "plugin/worker_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <iterator>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/files/file_bytes.h"
#include "base/memory_file.h"
#include "plugin/output_memory.h"
#include "plugin/worker_launch.h"

namespace offpath::plugin {

namespace {

constexpr int end_wait_ms = 1000;  // from SIGKILL to the end

constexpr std::pair<int, std::string_view> signals[] = {
    {SIGABRT, "ABRT"}, {SIGALRM, "ALRM"}, {SIGBUS, "BUS"},   {SIGFPE, "FPE"},   {SIGHUP, "HUP"},
    {SIGILL, "ILL"},   {SIGINT, "INT"},   {SIGKILL, "KILL"}, {SIGPIPE, "PIPE"}, {SIGQUIT, "QUIT"},
    {SIGSEGV, "SEGV"}, {SIGSYS, "SYS"},   {SIGTERM, "TERM"}, {SIGTRAP, "TRAP"}, {SIGXCPU, "XCPU"}};

}  // namespace

std::string exit_text(const Exit& exit) {
  if (!exit.by_signal) return fmt::format("exited with {}", exit.value);
  const auto* const found = std::ranges::find(signals, exit.value, [](const auto& each) { return each.first; });
  const std::string text = found == std::end(signals) ? fmt::format("was killed by signal {}", exit.value)
                                                      : fmt::format("was killed by SIG{}", found->second);
  return exit.value == SIGKILL ? text + ", which the agent did not send (no memory left?)" : text;
}

// ---- life

Result<WorkerProcess> WorkerProcess::start(const PluginOptions& options, const std::string& program,
                                           std::shared_ptr<ReceivedFds::User> user) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return fail_errno(errno, "socketpair");
  WorkerProcess worker;
  worker.socket_ = user ? user->own(ends[0]) : Fd(ends[0]);
  worker.reader_ = PacketReader(std::move(user));
  const Fd theirs(ends[1]);
  OFP_ASSIGN(const Fd control, memory_file("offpath-control"));
  if (ftruncate(control.get(), 2 * page_bytes) != 0) return fail_errno(errno, "ftruncate of the control pages");
  OFP_TRY(add_seals(control.get(), F_SEAL_SHRINK | F_SEAL_GROW, "the control pages"));
  void* page = mmap(nullptr, 2 * page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, control.get(), 0);
  if (page == MAP_FAILED) return fail_errno(errno, "mmap of the control page");
  worker.control_ = static_cast<std::atomic<CallNumber>*>(page);
  OFP_ASSIGN(worker.pid_, launch_worker(options, program, theirs.get(), control.get()));
  worker.process_ =
      Fd(static_cast<int>(syscall(SYS_pidfd_open, worker.pid_, 0)));  // it still exists, because it was not waited for
  if (!worker.process_) return fail_errno(errno, "pidfd_open");
  return worker;
}

WorkerProcess::WorkerProcess(WorkerProcess&& other) noexcept
    : socket_(std::move(other.socket_)),
      process_(std::move(other.process_)),
      pid_(std::exchange(other.pid_, 0)),
      control_(std::exchange(other.control_, nullptr)),
      sent_(other.sent_),
      kept_(std::move(other.kept_)),
      reaped_(other.reaped_),
      reader_(std::move(other.reader_)) {}

WorkerProcess::~WorkerProcess() {
  if (control_ != nullptr) munmap(control_, 2 * page_bytes);
  if (pid_ == 0 || reaped_) return;
  kill();
  // A process that waits for a file system outlives even SIGKILL: it is left to init.
  pollfd ended{process_.get(), POLLIN, 0};
  if (process_) poll(&ended, 1, end_wait_ms);
  siginfo_t info{};
  while (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | (process_ ? WNOHANG : 0)) != 0 && errno == EINTR) {
  }
}

void WorkerProcess::kill() noexcept {
  if (!reaped_) kill_worker(pid_);
}

void WorkerProcess::cancel(CallNumber number) noexcept {
  if (control_->load(std::memory_order_relaxed) < number) control_->store(number, std::memory_order_relaxed);
}

bool WorkerProcess::take_finished() noexcept {
  if (sent_ == 0 || control_[page_bytes / sizeof(CallNumber)].load(std::memory_order_acquire) != sent_) return false;
  sent_ = 0;
  return true;
}

std::optional<Exit> WorkerProcess::reap() {
  siginfo_t info{};
  if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
    return std::nullopt;
  // Kills its child processes before its number can be reused.
  kill();
  reaped_ = true;
  if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG) != 0) return std::nullopt;
  return Exit{info.si_code != CLD_EXITED, info.si_status};
}

// ---- calls

namespace {

// The descriptors of a call and its description. Inputs of one descriptor share it; inputs without a descriptor follow
// the description. Memory that the worker has kept needs none.
class CallWriter {
 public:
  using Kept = std::map<std::uint64_t, std::weak_ptr<const void>>;
  CallWriter(const Call& call, Kept& kept) : call_(call), kept_(kept) {}

  Status write(TimeNs deadline_ns, WorkerNumber self) {
    OFP_TRY(check());
    Description description;
    description.deadline_ns = deadline_ns;
    description.output_bytes_max = call_.output_bytes_max;
    description.function = call_.function;
    description.arguments_bytes = call_.arguments.size();
    description.session = call_.session;
    description.worker = self;
    description.lane = call_.lane;
    description.lanes = call_.lanes;
    for (const Input& input : call_.inputs)
      description.inputs.push_back(
          {input.row, input.column, 0, input.offset, 0, input.arrow ? 1u : 0u, input.kept, input.kept_bytes});
    for (const Room& room : call_.rooms)
      description.rooms.push_back({room.name, room.bytes,
                                   room.kept == 0 || has_already(room.kept) ? 0 : numbers_.at(room.fd), room.kept,
                                   room.kept_bytes});
    std::vector<std::byte> head;
    encode(description, head);  // has its final length: places have a fixed width
    const bool copies =
        std::ranges::any_of(call_.inputs, [](const Input& input) { return input.fd < 0 && !input.data.empty(); });
    enclosed_ = !copies && head.size() + call_.arguments.size() + 8 <= enclosed_bytes_max;
    const std::uint64_t alignment = enclosed_ ? 8 : page_bytes;
    std::uint64_t at = align_up(head.size(), alignment);
    description.arguments_at = at;
    at = align_up(at + call_.arguments.size(), alignment);
    for (std::size_t i = 0; i < call_.inputs.size(); ++i) at = place(call_.inputs[i], description.inputs[i], at);
    bytes_ = enclosed_ ? at : std::max<std::uint64_t>(at, page_bytes);
    head.clear();
    encode(description, head);
    if (!enclosed_) {
      OFP_ASSIGN(file_, memory_file("offpath-call"));
      return fill(head, description);
    }
    head.resize(bytes_);
    if (!call_.arguments.empty())
      std::memcpy(head.data() + description.arguments_at, call_.arguments.data(), call_.arguments.size());
    bytes_enclosed_ = std::move(head);
    return {};
  }

  [[nodiscard]] CallPacket packet(CallNumber number) {
    forget();
    return {number, static_cast<std::uint32_t>(descriptors().size()), bytes_, std::move(forget_),
            enclosed_ ? Bytes(bytes_enclosed_) : Bytes()};
  }
  [[nodiscard]] std::vector<int> descriptors() const {
    std::vector<int> all;
    if (!enclosed_) all.push_back(file_.get());
    all.insert(all.end(), others_.begin(), others_.end());
    return all;
  }
  // The call was sent: the worker has these from now on.
  void remember() {
    for (const Input& input : call_.inputs)
      if (input.kept != 0) kept_[input.kept] = input.owner;
    for (const Room& room : call_.rooms)
      if (room.kept != 0) kept_[room.kept] = room.owner;
  }

 private:
  [[nodiscard]] bool has_already(std::uint64_t kept) const { return kept != 0 && kept_.contains(kept); }

  // Drops kept memory that no longer exists, and memory beyond the limit that this call does not need.
  void forget() {
    const bool full = kept_.size() + call_.inputs.size() + call_.rooms.size() > kept_max;
    std::erase_if(kept_, [&](const auto& each) {
      const bool needed = std::ranges::find(call_.inputs, each.first, &Input::kept) != call_.inputs.end() ||
                          std::ranges::find(call_.rooms, each.first, &Room::kept) != call_.rooms.end();
      if (needed || (!full && !each.second.expired())) return false;
      forget_.push_back(each.first);
      return true;
    });
  }

  Status name_descriptor(int fd) {
    if (numbers_.contains(fd)) return {};
    others_.push_back(fd);
    numbers_.emplace(fd, static_cast<std::uint32_t>(others_.size()));
    if (others_.size() > input_descriptors_max)
      return fail(Error::too_large, "inputs of more than {} descriptors", input_descriptors_max);
    return {};
  }

  Status check() {
    if (call_.arguments.size() > arguments_bytes_max)
      return fail(Error::too_large, "arguments of {} bytes, at most {}", call_.arguments.size(), arguments_bytes_max);
    if (call_.inputs.size() > inputs_max)
      return fail(Error::too_large, "{} inputs, at most {}", call_.inputs.size(), inputs_max);
    std::uint64_t copied = 0;
    for (const Input& input : call_.inputs) {
      if (input.fd < 0) copied += input.data.size();
      if (copied > copied_bytes_max)
        return fail(Error::too_large,
                    "inputs of more than {} bytes in the agent's own memory: larger ones have to be in memfds",
                    copied_bytes_max);
      if (input.row.size() > key_bytes_max || input.column.size() > key_bytes_max)
        return fail(Error::too_large, "keys of {} and {} bytes, at most {}", input.row.size(), input.column.size(),
                    key_bytes_max);
      if (input.fd < 0) continue;
      if (input.offset % page_bytes != 0)
        return fail(Error::invalid, "an input at {}, which is not a multiple of {}", input.offset, page_bytes);
      if (numbers_.contains(input.fd) || has_already(input.kept)) continue;
      // A worker runs foreign code. It may read this memory, and nothing else.
      const int seals = fcntl(input.fd, F_GET_SEALS);
      if (seals < 0 || (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) == 0)
        return fail(Error::denied, "an input whose memory is not sealed against writing");
      OFP_TRY(name_descriptor(input.fd));
    }
    for (const Room& room : call_.rooms)
      if (room.kept != 0 && !has_already(room.kept)) OFP_TRY(name_descriptor(room.fd));
    return {};
  }

  std::uint64_t place(const Input& input, InputNotice& notice, std::uint64_t at) {
    if (input.fd >= 0) {
      notice.descriptor = has_already(input.kept) ? 0 : numbers_.at(input.fd);
      notice.bytes = input.bytes;
      return at;
    }
    notice.offset = at;
    notice.bytes = input.data.size();
    return align_up(at + input.data.size(), page_bytes);
  }

  Status fill(Bytes head, const Description& description) {
    if (ftruncate(file_.get(), static_cast<off_t>(bytes_)) != 0) return fail_errno(errno, "ftruncate of a call");
    OFP_TRY(write_all(file_.get(), head, 0));
    OFP_TRY(write_all(file_.get(), call_.arguments, description.arguments_at));
    for (std::size_t i = 0; i < call_.inputs.size(); ++i) {
      if (call_.inputs[i].fd < 0) OFP_TRY(write_all(file_.get(), call_.inputs[i].data, description.inputs[i].offset));
    }
    return add_seals(file_.get(), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE, "a call");
  }

  const Call& call_;
  Kept& kept_;
  Fd file_;
  bool enclosed_ = false;
  std::vector<std::byte> bytes_enclosed_;
  std::vector<std::uint64_t> forget_;
  std::uint64_t bytes_ = 0;
  std::vector<int> others_;
  std::unordered_map<int, std::uint32_t> numbers_;
};

}  // namespace

Status WorkerProcess::send(CallNumber number, const Call& call, TimeNs deadline_ns, WorkerNumber self) {
  CallWriter writer(call, kept_);
  OFP_TRY(writer.write(deadline_ns, self));
  const std::vector<int> all = writer.descriptors();
  std::span<const int> left(all);
  std::vector<std::byte> packet;
  encode(writer.packet(number), packet);
  writer.remember();
  sent_ = number;
  do {
    const auto now = left.first(std::min(left.size(), packet_descriptors_max));
    // The socket of a worker that waits for a call is empty: a message that does not fit is the worker's fault.
    if (Status sent = send_packet(socket_.get(), packet, now, Wait::no); !sent)
      return fail(Error::peer_lost, "the worker accepts no call: {}", sent.error().message);
    left = left.subspan(now.size());
    packet.clear();
    encode(MorePacket{}, packet);
  } while (!left.empty());
  return {};
}

Status WorkerProcess::answer(CallNumber call, OperationNumber operation, const OperationAnswer& answer) {
  AnswerPacket packet{call,
                      operation,
                      answer.status ? 0 : static_cast<std::int32_t>(answer.status.error().code),
                      answer.status ? "" : answer.status.error().message,
                      answer.bytes,
                      answer.fd < 0,
                      answer.enclosed};
  if (packet.is_enclosed && packet.enclosed.size() != packet.bytes)
    packet.is_enclosed = false;  // returns only the size of a message that does not fit
  std::vector<std::byte> bytes;
  encode(packet, bytes);
  int fd = answer.fd;
  Status sent = send_packet(socket_.get(), bytes, {&fd, fd < 0 ? 0u : 1u}, Wait::no);
  Fd copy;
  if (!sent && sent.error().code == Error::would_block && packet.is_enclosed && packet.bytes != 0) {
    // The socket is full of answers to other operations; a descriptor takes less room.
    OFP_ASSIGN(copy, sealed_copy("offpath-message", packet.enclosed));
    fd = copy.get();
    packet.is_enclosed = false;
    bytes.clear();
    encode(packet, bytes);
    sent = send_packet(socket_.get(), bytes, {&fd, 1}, Wait::no);
  }
  if (!sent) return fail(Error::peer_lost, "the worker accepts no answer: {}", sent.error().message);
  return {};
}

// ---- messages of the worker

Result<WorkerEvent> accept_packet(Packet packet) {
  OFP_ASSIGN(FromWorker message, decode_from_worker(packet.bytes));
  auto* done = std::get_if<Done>(&message);
  if (auto* const send = std::get_if<SendNotice>(&message)) {
    if (packet.descriptors.size() != (send->is_enclosed ? 0 : 1))
      return fail(Error::protocol, "a message to a lane with {} descriptors", packet.descriptors.size());
    Sending sending{std::move(*send), {}};
    if (sending.notice.is_enclosed) return WorkerEvent(std::move(sending));
    OFP_TRY(check_output(packet.descriptors.front().get(), sending.notice.bytes, "a message to a lane"));
    sending.memory = Fd(packet.descriptors.front().release());
    return WorkerEvent(std::move(sending));
  }
  const auto lies_in_room = [](const OutputNotice& output) { return (output.flags & output_in_room) != 0; };
  const auto wanted =
      done == nullptr ? 0 : static_cast<std::size_t>(std::ranges::count_if(done->outputs, std::not_fn(lies_in_room)));
  if (packet.descriptors.size() != wanted)
    return fail(Error::protocol, "a message with {} descriptors, expected {}", packet.descriptors.size(), wanted);
  if (done == nullptr) {
    return std::visit(
        [](auto&& each) -> Result<WorkerEvent> {
          using Message = std::decay_t<decltype(each)>;
          if constexpr (std::is_same_v<Message, Done> || std::is_same_v<Message, SendNotice>)
            return fail(Error::protocol, "");
          else
            return WorkerEvent(std::move(each));
        },
        std::move(message));
  }
  Finished finished{done->call, done->status, std::move(done->error), {}};
  std::size_t next = 0;
  for (OutputNotice& output : done->outputs) {
    const bool in_room = lies_in_room(output), arrow = (output.flags & ~output_in_room) != 0;
    Fd memory = in_room ? Fd() : std::move(packet.descriptors[next++]);
    if (!in_room) OFP_TRY(check_output(memory.get(), output.bytes, fmt::format("output {}", next - 1)));
    finished.outputs.push_back({std::move(output.name), arrow, output.bytes, Fd(memory.release()), in_room});
  }
  return WorkerEvent(std::move(finished));
}

Result<std::optional<WorkerEvent>> WorkerProcess::receive() {
  auto packet = reader_.receive(socket_.get(), Wait::no);
  if (!packet && packet.error().code == Error::would_block) return std::optional<WorkerEvent>();
  if (!packet) return tl::unexpected<Failure>(std::move(packet).error());
  if (!*packet) return fail(Error::peer_lost, "it closed its socket");
  OFP_ASSIGN(WorkerEvent event, accept_packet(std::move(**packet)));
  return std::optional(std::move(event));
}

}  // namespace offpath::plugin
