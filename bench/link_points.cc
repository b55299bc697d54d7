// The performance of a link alone, without services: the measurements with which the papers begin (OSU: latency,
// bandwidth with a window, message rate of pairs, all-gather), in the form in which this project moves data. The
// receiver reads messages out of the sender's memory, so a message's latency is the time from the request to its
// arrival.
//
// Usage: bench_link_points --link local|tcp|verbs --place NAME [--address ADDRESS] [--group FILE]
//                          [--members-group FILE] …
//
// Programs hold the memory (link_members.h) on the host core; this process is the agent's end on the agent core. Groups
// are control groups that the two join. Peers: for local the bare system call, for tcp a request and an answer on a
// plain socket of the same kernel. For verbs perftest is the peer, in a separate process.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>

#include "link_members.h"
#include "measure.h"
#include "report.h"

namespace offpath::bench {
namespace {

constexpr std::uint32_t window = 64;
constexpr std::size_t pairs_of_rate = 8, members_of_gather = 16;
constexpr std::uint64_t size_max_of_one = 1 << 20, size_max_of_rate = 64 << 10, size_max_of_gather = 64 << 10;
constexpr std::uint32_t repeats_max = 20'000;

struct Setting {
  std::string link, place, address, peer;
  PairPlan pairs;
  double turn_ns = 0;  // duration of a turn
  std::vector<std::uint64_t> sizes = {};
};

// The same for both sides of a comparison: fetches from every member, a number of messages of one size at a time.
class Fetcher {
 public:
  virtual ~Fetcher() = default;
  virtual Status fetch(std::uint64_t bytes, std::uint32_t messages) = 0;
  // Collects a message of each member, then sends all of them to every member.
  virtual Status gather(std::uint64_t bytes) = 0;
};

class LinkFetcher final : public Fetcher {
 public:
  LinkFetcher(std::span<Member> members, const Pages& target) : members_(members), target_(target) {}

  Status fetch(std::uint64_t bytes, std::uint32_t messages) override {
    const link::ReadPiece piece{Member::range, Member::generation, 0, target_.data(), bytes};
    for (Member& member : members_)
      for (std::uint32_t i = 0; i < messages; ++i) member.link->read(i, {&piece, 1});
    return finish(messages);
  }

  Status gather(std::uint64_t bytes) override {
    std::byte* to = target_.data();
    for (Member& member : members_) {
      const link::ReadPiece piece{Member::range, Member::generation, 0, to, bytes};
      member.link->read(0, {&piece, 1});
      to += bytes;
    }
    OFP_TRY(finish(1));
    const link::WritePiece all{Member::segment, 0, target_.data(), bytes * members_.size()};
    for (Member& member : members_) member.link->write(0, {&all, 1});
    return finish(1);
  }

 private:
  Status finish(std::size_t operations) {
    for (Member& member : members_) {
      for (std::size_t done = 0; done < operations;) {
        std::array<link::LinkEvent, window> events;
        const std::size_t count = member.link->poll(monotonic_ns(), events);
        for (const link::LinkEvent& event : std::span(events).first(count)) {
          if (event.kind == link::LinkEvent::Kind::woken) continue;
          if (!event.status) return tl::unexpected<Failure>(event.status.error());
          ++done;
        }
      }
    }
    return {};
  }

  std::span<Member> members_;
  const Pages& target_;
};

// One system call for each message.
class RawFetcher final : public Fetcher {
 public:
  RawFetcher(std::span<Member> members, const Pages& target) : members_(members), target_(target) {}

  Status fetch(std::uint64_t bytes, std::uint32_t messages) override {
    for (const Member& member : members_)
      for (std::uint32_t i = 0; i < messages; ++i) OFP_TRY(read(member, target_.data(), bytes));
    return {};
  }

  Status gather(std::uint64_t bytes) override {
    std::byte* to = target_.data();
    for (const Member& member : members_) {
      OFP_TRY(read(member, to, bytes));
      to += bytes;
    }
    const iovec from{target_.data(), bytes * members_.size()};
    for (const Member& member : members_) {
      const iovec there{reinterpret_cast<void*>(member.segment_base), from.iov_len};
      if (process_vm_writev(member.pid, &from, 1, &there, 1, 0) != ssize_t(from.iov_len))
        return fail_errno(errno, "process_vm_writev");
    }
    return {};
  }

 private:
  static Status read(const Member& member, std::byte* to, std::uint64_t bytes) {
    const iovec here{to, bytes}, there{reinterpret_cast<void*>(member.range_base), bytes};
    if (process_vm_readv(member.pid, &here, 1, &there, 1, 0) != ssize_t(bytes))
      return fail_errno(errno, "process_vm_readv");
    return {};
  }

  std::span<Member> members_;
  const Pages& target_;
};

// Sends requests first, then reads the answers; it spins for them, like the link's end.
class SocketFetcher final : public Fetcher {
 public:
  SocketFetcher(std::span<Member> members, const Pages& target) : members_(members), target_(target) {}

  Status fetch(std::uint64_t bytes, std::uint32_t messages) override {
    requests_.assign(messages, {0, std::uint32_t(bytes)});
    for (const Member& member : members_) OFP_TRY(send_all(member, requests_.data(), messages * sizeof(ServerRequest)));
    for (const Member& member : members_)
      for (std::uint32_t i = 0; i < messages; ++i) OFP_TRY(receive_all(member, target_.data(), bytes));
    return {};
  }

  Status gather(std::uint64_t bytes) override {
    const ServerRequest ask{0, std::uint32_t(bytes)};
    for (const Member& member : members_) OFP_TRY(send_all(member, &ask, sizeof ask));
    std::byte* to = target_.data();
    for (const Member& member : members_) {
      OFP_TRY(receive_all(member, to, bytes));
      to += bytes;
    }
    const ServerRequest push{std::uint32_t(bytes * members_.size()), 1};
    for (const Member& member : members_) {
      OFP_TRY(send_all(member, &push, sizeof push, MSG_MORE));
      OFP_TRY(send_all(member, target_.data(), push.pushed));
    }
    std::byte taken;
    for (const Member& member : members_) OFP_TRY(receive_all(member, &taken, 1));
    return {};
  }

 private:
  static Status send_all(const Member& member, const void* from, std::size_t length, int flags = 0) {
    const auto* at = static_cast<const std::byte*>(from);
    while (length > 0) {
      const ssize_t sent = send(member.server.get(), at, length, MSG_NOSIGNAL | flags);
      if (sent < 0 && errno != EINTR) return fail_errno(errno, "send");
      at += std::max<ssize_t>(sent, 0);
      length -= std::size_t(std::max<ssize_t>(sent, 0));
    }
    return {};
  }
  static Status receive_all(const Member& member, std::byte* to, std::size_t length) {
    while (length > 0) {
      const ssize_t got = recv(member.server.get(), to, length, MSG_DONTWAIT);
      if (got == 0) return fail(Error::peer_lost, "a server ended");
      if (got < 0 && errno != EAGAIN && errno != EINTR) return fail_errno(errno, "recv");
      to += std::max<ssize_t>(got, 0);
      length -= std::size_t(std::max<ssize_t>(got, 0));
    }
    return {};
  }

  std::span<Member> members_;
  const Pages& target_;
  std::vector<ServerRequest> requests_;
};

// ---- turns

using Operation = std::function<Status()>;

// Repeats the operation for the duration of a turn, with a number of repeats found in the first turns; returns the mean
// in nanoseconds, which includes stops because of a quota.
Turn repeated(const Operation& operation, double turn_ns) {
  return [operation, turn_ns, repeats = std::uint32_t(1)]() mutable -> Result<double> {
    for (;;) {
      const std::uint64_t began = ticks();
      for (std::uint32_t i = 0; i < repeats; ++i) OFP_TRY(operation());
      const double all_ns = double(ticks() - began) * ns_per_tick();
      if (all_ns >= turn_ns / 2 || repeats == repeats_max) return all_ns / repeats;
      repeats = std::uint32_t(std::clamp(repeats * turn_ns / all_ns, repeats + 1.0, double(repeats_max)));
    }
  };
}

struct Point {
  double subject_ns = 0, peer_ns = not_measured;
  std::optional<Comparison> comparison = {};
};

Result<Point> measure(const Setting& setting, const Operation& subject, const Operation& peer) {
  const Turn turn = repeated(subject, setting.turn_ns);
  if (!peer) {
    OFP_ASSIGN(const std::vector<double> turns, run_turns(setting.pairs.pairs, setting.pairs.warmups, turn));
    return Point{.subject_ns = median(turns)};
  }
  OFP_ASSIGN(const Comparison compared, run_pairs(setting.pairs, turn, repeated(peer, setting.turn_ns)));
  return Point{compared.subject, compared.peer, compared};
}

// ---- measured quantities

// A quantity over sizes: the sizes that are claims, and the conversion of nanoseconds.
struct Quantity {
  std::string name, unit;
  double (*of)(double ns, double bytes);
  std::uint64_t size_max;
  std::vector<std::uint64_t> claimed;
};

std::string size_text(std::uint64_t bytes) {
  if (bytes >= 1 << 20) return fmt::format("{} MiB", bytes >> 20);
  return bytes >= 1 << 10 ? fmt::format("{} KiB", bytes >> 10) : fmt::format("{} B", bytes);
}

void add_claim(Report& report, const Setting& setting, const Quantity& quantity, std::uint64_t bytes,
               const Point& point) {
  Claim claim;
  claim.claim = fmt::format("link.{} ({}, {}, {})", quantity.name, setting.link, setting.place, size_text(bytes));
  claim.value = quantity.of(point.subject_ns, double(bytes));
  claim.unit = quantity.unit;
  if (point.comparison) {
    claim.peer = setting.peer;
    claim.peer_value = quantity.of(point.peer_ns, double(bytes));
    claim.ratio = point.comparison->ratio;
    claim.interval = point.comparison->interval;
    claim.pairs = point.comparison->pairs;
  }
  report.add(std::move(claim));
}

// `over`: the cost of one size with a fetcher.
Status measure_sizes(const Options& options, Report& report, const Setting& setting, const Quantity& quantity,
                     Fetcher& subject, Fetcher* peer, const std::function<Status(Fetcher&, std::uint64_t)>& over) {
  const std::string figure = fmt::format("link_{}_{}", quantity.name, setting.link);
  Series ours{figure, setting.place + ", Offpath", "bytes", quantity.unit, {}, {}};
  Series theirs{figure, fmt::format("{}, {}", setting.place, setting.peer), "bytes", quantity.unit, {}, {}};
  for (const std::uint64_t bytes : setting.sizes) {
    if (bytes > std::min(quantity.size_max, options.size_max_bytes)) break;
    OFP_ASSIGN(const Point point, measure(
                                      setting, [&] { return over(subject, bytes); },
                                      peer ? Operation([&] { return over(*peer, bytes); }) : Operation()));
    ours.x.push_back(double(bytes));
    ours.y.push_back(quantity.of(point.subject_ns, double(bytes)));
    if (peer != nullptr) {
      theirs.x.push_back(double(bytes));
      theirs.y.push_back(quantity.of(point.peer_ns, double(bytes)));
    }
    if (std::ranges::find(quantity.claimed, bytes) != quantity.claimed.end())
      add_claim(report, setting, quantity, bytes, point);
  }
  report.add(std::move(ours));
  if (peer != nullptr) report.add(std::move(theirs));
  return {};
}

std::unique_ptr<Fetcher> make_peer(const Setting& setting, std::span<Member> members, const Pages& target) {
  if (setting.link == "local") return std::make_unique<RawFetcher>(members, target);
  if (setting.link == "tcp") return std::make_unique<SocketFetcher>(members, target);
  return nullptr;
}

Result<std::vector<Member>> start(const Options& options, const Setting& setting) {
  MembersPlan plan;
  plan.address = setting.address;
  plan.count = members_of_gather;
  plan.core = options.host_core;
  plan.group = options.other("--members-group");
  plan.range_bytes = size_max_of_one;
  plan.segment_bytes = members_of_gather * size_max_of_gather;
  plan.servers = setting.link == "tcp";
  return start_members(plan);
}

Status run(const Options& options, Report& report) {
  Setting setting{std::string(options.other("--link")), std::string(options.other("--place")),
                  std::string(options.other("--address")), "", options.pairs()};
  if (setting.link == "tcp" && setting.address.empty()) setting.address = "tcp:127.0.0.1:0";
  if (setting.link != "local" && setting.link != "tcp" && (setting.link != "verbs" || setting.address.empty()))
    return fail(Error::invalid, "--link is '{}' and --address '{}': local, tcp, or verbs with an address", setting.link,
                setting.address);
  setting.peer = setting.link == "local" ? "process_vm_readv" : setting.link == "tcp" ? "TCP request" : "";
  const std::string group(options.other("--group"));
  // Under a quota a turn has to last for several of its periods, and fewer sizes have to do.
  setting.turn_ns = options.quick ? 2e5 : group.empty() ? 2e6 : 12e6;
  if (options.quick)
    setting.sizes = {64, 4 << 10};
  else if (!group.empty())
    setting.sizes = {1, 64, 1 << 10, 16 << 10, 64 << 10, 1 << 20};
  else
    for (std::uint64_t bytes = 1; bytes <= size_max_of_one; bytes *= 4) setting.sizes.push_back(bytes);

  // Forked before this process joins a group.
  OFP_ASSIGN(std::vector<Member> members, start(options, setting));
  const std::span<Member> sixteen(members), eight = sixteen.first(pairs_of_rate), one = sixteen.first(1);
  OFP_TRY(pin_to_core(options.agent_core));
  if (!group.empty()) OFP_TRY(join_group(group));
  OFP_ASSIGN(const Pages target, Pages::map(std::max(size_max_of_one, members_of_gather * size_max_of_gather)));

  const auto each = [&](std::span<Member> those, const Quantity& quantity,
                        const std::function<Status(Fetcher&, std::uint64_t)>& over) {
    LinkFetcher subject(those, target);
    const auto peer = make_peer(setting, those, target);
    return measure_sizes(options, report, setting, quantity, subject, peer.get(), over);
  };
  const auto microseconds = [](double ns, double) { return ns / 1e3; };
  OFP_TRY(each(one, {"latency", "us", microseconds, size_max_of_one, {64, 64 << 10}},
               [](Fetcher& by, std::uint64_t bytes) { return by.fetch(bytes, 1); }));
  OFP_TRY(each(one,
               {"bandwidth",
                "GB/s",
                [](double ns, double bytes) { return window * bytes / ns; },
                size_max_of_one,
                {4 << 10, 64 << 10, 1 << 20}},
               [](Fetcher& by, std::uint64_t bytes) { return by.fetch(bytes, window); }));
  OFP_TRY(
      each(eight,
           {"rate", "M/s", [](double ns, double) { return window * pairs_of_rate / ns * 1e3; }, size_max_of_rate, {64}},
           [](Fetcher& by, std::uint64_t bytes) { return by.fetch(bytes, window); }));
  return each(sixteen, {"all_gather", "us", microseconds, size_max_of_gather, {64, 64 << 10}},
              [](Fetcher& by, std::uint64_t bytes) { return by.gather(bytes); });
}

}  // namespace
}  // namespace offpath::bench

int main(int argc, char** argv) {
  return offpath::bench::run_main(argc, argv, "link", {"--link", "--place", "--address", "--group", "--members-group"},
                                  offpath::bench::run);
}
