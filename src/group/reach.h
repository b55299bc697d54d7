// Requests from this agent to others: one channel to each asked member, with this agent as its host. So agents
// communicate like a program and its agent: the sender posts, the receiver pulls, one-sided.
//
//   post --> queued --> (connect, in a job) --> asked: in the request ring --> answer
//                 `--> no connection, deadline, the other one's end: answer, a failure that names the member
//
// Bytes that are copied for a member lie in its outbox, which it may read and write. The outbox is made for the first
// request that needs it, and given back when none has for a while, so a rarely asked member costs only its rings. Both
// wait for the member, so a job does it, to which the channel belongs meanwhile.
//
// A channel that was used only for tables of members is closed when it has been idle for a while. While a group forms,
// every member posts to most others; afterwards only to a few neighbours.
//
// It has no socket, thread or clock of its own: Surroundings are given, so that a simulation can replace them. Belongs
// to one loop.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/due_times.h"
#include "base/status.h"
#include "channel/host_end.h"
#include "service/effects.h"
#include "wire/messages/message_kinds.h"
#include "wire/region.h"

namespace offpath::group {

using Named = service::AskedMemory;
using service::Answer;

// A request to one member.
struct Request {
  wire::EntryKind kind{};
  TimeNs deadline = never;
  // Bytes the member may pull until it has answered: a small body, or an object. Up to Reach::copied_bytes_max they are
  // copied to memory that the channel shares. Larger ones are read in place: as a range, or through the object's
  // descriptor where the link cannot read ranges. `owner` keeps the object until the member is done with it.
  std::vector<std::byte> body{};
  Bytes object{};
  std::function<int()> object_fd{};  // asks for the descriptor only if the descriptor is passed
  std::shared_ptr<const void> owner{};
  std::uint64_t payload_bytes = 1024;  // of the request itself, approximately
  // Its answer does not wake this agent, and is taken at the next wake.
  bool answer_can_wait = false;
  // It does not wake the member either, over a link on which the member then sees it in its next round.
  bool can_wait = false;
  // After its answer the member keeps no state that depends on the channel.
  bool leaves_nothing = false;
  std::uint32_t inbox_bytes = 0;  // of room for the member's pushes; Reach::copied_bytes_max at most
  // Writes the request's bytes.
  std::function<void(const Named& named, std::vector<std::byte>& payload)> compose{};
  // Called once, on the loop, from within poll(). It may post, but not drop. A `failed` reply arrives as its failure.
  std::function<void(Result<Answer> answer, TimeNs now)> answer{};
};

struct ReachOptions {
  TimeNs connect_wait_ns = 2 * second_ns;
  TimeNs retry_min_ns = 20 * millisecond_ns, retry_max_ns = second_ns;  // between attempts: twice as long each time
  std::size_t queued_max = 1 << 18;        // requests that wait for one member's connection or room; more fail at once
  TimeNs outbox_idle_ns = 10 * second_ns;  // an outbox that nothing has used for so long is given back
  // A channel whose requests left nothing, and that was idle for so long, ends. Those that beats use stay.
  TimeNs channel_idle_ns = 5 * second_ns;
};

struct ReachCounters {
  std::uint64_t channels = 0, connects = 0, connect_failures = 0, lost = 0, asked = 0, answered = 0, failed = 0;
  std::uint64_t outboxes = 0;  // now
};

class Reach {
 public:
  // Bytes that are copied at a time for one member; further requests wait.
  static constexpr std::uint64_t outbox_bytes = 4 << 20;
  static constexpr std::uint64_t copied_bytes_max = 64 << 10;  // of an object, and of an inbox
  static constexpr std::uint64_t body_bytes_max = 2 << 20;

  struct Surroundings {
    // Blocks, in a job, until the deadline at most.
    std::function<Result<std::unique_ptr<channel::HostEnd>>(const std::string& address, TimeNs deadline)> connect;
    // As loop::JobPool::start.
    std::function<void(std::function<Status()> run, std::function<void(Status, TimeNs now)> done)> start_job;
    // `on_ready` is called while the descriptor is readable. A failure: it cannot be watched, and is polled.
    std::function<Status(int fd, std::function<void()> on_ready)> watch;
    std::function<void(int fd)> unwatch;
  };

  Reach(Surroundings surroundings, const ReachOptions& options);
  ~Reach();
  Reach(const Reach&) = delete;
  Reach& operator=(const Reach&) = delete;

  // `name` is for messages; empty: the address alone.
  void post(const std::string& name, const std::string& address, Request request);
  // Requests to this address end with `why`, and so does its channel. A later post connects again.
  void drop(const std::string& address, const Failure& why);

  bool poll(TimeNs now);
  [[nodiscard]] bool fall_asleep(TimeNs now);
  [[nodiscard]] TimeNs next_deadline() const;
  // Whether an answer that wakes this agent is likely to come soon, or has just come.
  [[nodiscard]] bool expects_more() const noexcept { return urgent_; }

  // A process was found at an address, or the channel to it was lost.
  std::function<void(const std::string& address, std::uint64_t process)> on_connected;
  std::function<void(const std::string& address, std::uint64_t process, const Failure& why, TimeNs now)> on_lost;

  [[nodiscard]] const ReachCounters& counters() const noexcept { return counters_; }

 private:
  struct Asked {
    std::uint64_t ticket;
    Request request;
    std::uint64_t at, length;  // of what is copied and of the inbox behind it, in the outbox
    std::uint64_t inbox_at;
    channel::HostEnd::RangeName range;  // of its object; 0: none
  };
  // An object that the member may read. It stays until the member has confirmed that it no longer reads it, or the
  // channel has ended; no request waits for that.
  struct Retiring {
    channel::HostEnd::RangeName range;
    std::shared_ptr<const void> owner;
    bool told = false;  // the withdrawal was sent
  };
  struct Peer {
    std::string name, address;
    std::uint64_t number = 0;  // number of the attempt, to recognise late results of earlier ones
    bool connecting = false, readable = false, watched = false;
    bool lent = false;                      // connected, and a job that changes its outbox has the end
    bool fresh = false;                     // some queued request was not tried yet
    std::unique_ptr<channel::HostEnd> end;  // null: not connected, or lent
    wire::RegionId outbox = 0;              // 0: none
    std::uint64_t outbox_for = 0;           // the queued request that waits for one, or 0
    std::size_t copied = 0;                 // asked requests with memory there
    TimeNs outbox_used_at = 0, used_at = 0;
    bool stays = false;                       // the member may keep state that depends on the channel
    std::map<std::uint64_t, Request> queued;  // by number, in the order of posting
    std::map<std::uint64_t, Asked> asked;
    std::size_t urgent = 0;             // of these, those whose answer wakes this agent
    DueTimes<std::uint64_t> deadlines;  // of both
    std::list<Retiring> retiring;       // withdrawn ones first
    std::uint32_t failures = 0;         // to connect, in a row
    TimeNs retry_at = 0;
    Failure last_failure{Error::timeout, "there was no time to connect"};
    std::string logged{};  // the reason why it cannot be reached that was last logged
  };
  struct Attempt {
    std::unique_ptr<channel::HostEnd> end;
    wire::RegionId outbox = 0;
  };

  void connect(Peer& peer, TimeNs now);
  bool change_outbox(Peer& peer, TimeNs now);
  void give_back(const std::string& address, std::uint64_t number, Attempt attempt, const Status& status, TimeNs now);
  void watch(Peer& peer);
  void connected(const std::string& address, std::uint64_t number, Attempt attempt, const Status& status, TimeNs now);
  static void log_refusal(Peer& peer, const Failure& why);
  void disconnect(Peer& peer);
  [[nodiscard]] bool is_idle(const Peer& peer, TimeNs now) const noexcept;
  void end_idle(Peer& peer);
  void lose(Peer& peer, const Failure& why, TimeNs now);
  bool work(Peer& peer, TimeNs now);
  bool take_answers(Peer& peer, TimeNs now);
  bool ask_queued(Peer& peer, TimeNs now);
  [[nodiscard]] Status ask(Peer& peer, std::uint64_t number, Request& request);
  [[nodiscard]] static std::optional<std::uint64_t> find_room(const Peer& peer, std::uint64_t length);
  bool end_late(Peer& peer, TimeNs now);
  [[nodiscard]] Status name_object(Peer& peer, const Request& request, Named& named,
                                   channel::HostEnd::RangeName& range);
  bool withdraw(Peer& peer, bool looked);
  void finish(Request request, Result<Answer> answer, TimeNs now);
  void refuse(const Peer& peer, Request request, const Failure& why);
  [[nodiscard]] static std::string text_of(const Peer& peer);

  Surroundings surroundings_;
  ReachOptions options_;
  std::map<std::string, std::unique_ptr<Peer>> peers_;  // by address
  std::vector<std::pair<Request, Failure>> dropped_;    // to be told by the next poll
  std::uint64_t attempts_ = 0, posted_ = 0;
  bool urgent_ = false;     // the last poll handled requests whose answer wakes this agent
  bool attention_ = false;  // a peer may have work: otherwise a round costs one look at this
  ReachCounters counters_;
};

}  // namespace offpath::group
