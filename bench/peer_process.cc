#include "peer_process.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/bytes.h"
#include "machine.h"
#include "measure.h"

namespace offpath::bench {
namespace {

struct Answer {
  std::int32_t code = 0;  // Error, 0: none
  double value = 0;
  char message[240] = {};
};

Answer answer_of(const Failure& failure) {
  Answer answer{.code = std::int32_t(failure.code), .value = 0};
  const std::size_t length = std::min(failure.message.size(), sizeof answer.message - 1);
  std::memcpy(answer.message, failure.message.data(), length);
  return answer;
}

Result<double> receive_answer(int socket) {
  Answer answer;
  const ssize_t got = recv(socket, &answer, sizeof answer, 0);
  if (got != ssize_t(sizeof answer)) return fail(Error::peer_lost, "the peer process ended");
  if (answer.code != 0) return fail(Error(answer.code), "{}", answer.message);
  return answer.value;
}

[[noreturn]] void serve(Fd socket, int core, const PeerProcess::Make& make) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Result<std::unique_ptr<Puller>> puller = fail(Error::invalid, "not made");
  if (const Status pinned = pin_to_core(core); !pinned) {
    puller = tl::unexpected(pinned.error());
  } else {
    puller = make();
  }
  const Answer first = puller ? Answer{} : answer_of(puller.error());
  if (send(socket.get(), &first, sizeof first, MSG_NOSIGNAL) < 0 || !puller) _exit(0);
  for (Pull turn; recv(socket.get(), &turn, sizeof turn, 0) == ssize_t(sizeof turn);) {
    const auto result = (*puller)->pull(turn);
    const Answer answer = result ? Answer{.code = 0, .value = *result} : answer_of(result.error());
    if (send(socket.get(), &answer, sizeof answer, MSG_NOSIGNAL) < 0) break;
  }
  _exit(0);
}

class RawReader final : public Puller {
 public:
  explicit RawReader(pid_t source_pid) : source_pid_(source_pid) {}

  Result<double> pull(const Pull& turn) override {
    const std::uint64_t target_bytes = align_up(turn.column_bytes, page_bytes) * turn.columns;
    for (Pages& target : targets_) {
      if (target.size() < target_bytes || target.size() > 4 * target_bytes) {
        target = Pages();
        OFP_ASSIGN(target, Pages::map(target_bytes, Pages::Kind::shared_file));
      }
    }
    return time_repeats(turn, [&](std::uint64_t first) -> Status {
      for (std::uint32_t i = 0; i < turn.outstanding; ++i) OFP_TRY(read_one(turn, first + i));
      return {};
    });
  }

 private:
  Status read_one(const Pull& turn, std::uint64_t operation) {
    static constexpr std::size_t columns_max = 512;
    if (turn.columns > columns_max) return fail(Error::too_large, "{} columns, at most {}", turn.columns, columns_max);
    std::array<iovec, columns_max> local, remote;
    std::byte* target = targets_[operation % targets_.size()].data();
    for (std::uint32_t c = 0; c < turn.columns; ++c) {
      local[c] = {target + c * align_up(turn.column_bytes, page_bytes), turn.column_bytes};
      remote[c] = {reinterpret_cast<void*>(turn.source + turn.offset_of(operation, c)), turn.column_bytes};
    }
    const ssize_t got = process_vm_readv(source_pid_, local.data(), turn.columns, remote.data(), turn.columns, 0);
    if (got < 0) return fail_errno(errno, "process_vm_readv");
    if (std::uint64_t(got) != turn.column_bytes * turn.columns) {
      return fail(Error::io, "process_vm_readv gave {} bytes of {}", got, turn.column_bytes * turn.columns);
    }
    return {};
  }

  pid_t source_pid_;
  // Two alternating targets of the memory that an agent's frames use: as for a stream that keeps one frame.
  std::array<Pages, 2> targets_;
};

}  // namespace

Result<double> time_repeats(const Pull& turn, const std::function<Status(std::uint64_t)>& repeat) {
  std::vector<double> costs_ns;
  costs_ns.reserve(turn.repeats);
  for (std::uint32_t i = 0; i < turn.unrecorded + turn.repeats; ++i) {
    const std::uint64_t start = ticks();
    OFP_TRY(repeat(std::uint64_t(i) * turn.outstanding));
    const std::uint64_t end = ticks();
    if (i >= turn.unrecorded) costs_ns.push_back(double(end - start) * ns_per_tick());
  }
  return median(costs_ns);
}

PeerProcess::Make make_raw_reader(pid_t source_pid) {
  return [source_pid]() -> Result<std::unique_ptr<Puller>> {
    return std::make_unique<RawReader>(source_pid != 0 ? source_pid : getppid());
  };
}

Result<PeerProcess> PeerProcess::start(int core, const Make& make) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return fail_errno(errno, "socketpair");
  Fd ours(ends[0]), theirs(ends[1]);
  const pid_t pid = fork();
  if (pid < 0) return fail_errno(errno, "fork");
  if (pid == 0) {
    ours.reset();
    serve(std::move(theirs), core, make);
  }
  theirs.reset();
  prctl(PR_SET_PTRACER, pid, 0, 0, 0);  // needed under Yama 1; elsewhere it fails harmlessly
  PeerProcess process(std::move(ours), pid);
  OFP_TRY(receive_answer(process.socket_.get()));
  return process;
}

PeerProcess::~PeerProcess() {
  if (pid_ < 0) return;
  shutdown(socket_.get(), SHUT_RDWR);  // closing would not end it: later peers inherited the descriptor
  waitpid(pid_, nullptr, 0);
}

Result<double> PeerProcess::pull(const Pull& turn) {
  if (send(socket_.get(), &turn, sizeof turn, MSG_NOSIGNAL) != ssize_t(sizeof turn)) {
    return fail(Error::peer_lost, "the peer process ended");
  }
  return receive_answer(socket_.get());
}

}  // namespace offpath::bench
