#include "channel/host_end.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/log.h"
#include "base/relax.h"
#include "base/sleep_flag.h"
#include "channel/interruption.h"

namespace offpath::channel {

using wire::ChannelLayout;
using wire::EntryKind;
using wire::WakeWord;

namespace {

// How long a wait spins before it sleeps: about the cost of a sleep and a wake.
constexpr TimeNs spin_ns = 30 * microsecond_ns;
// after this part other threads on the core, perhaps an agent, get their turn
constexpr TimeNs spin_alone_ns = microsecond_ns;
// Slots reserved for wake requests, so that a full ring can still ask for a wake.
constexpr std::uint64_t spare_slots = 8;
constexpr std::size_t failures_max = 4096;

std::uint64_t load_word(const std::byte* at) noexcept {
  return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(const_cast<std::byte*>(at)))
      .load(std::memory_order_acquire);
}

void store_word(std::byte* at, std::uint64_t value) noexcept {
  std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(at)).store(value, std::memory_order_release);
}

WakeWord wake_word(Progress progress) noexcept {
  return progress == Progress::pulled ? WakeWord::pulled : WakeWord::stored;
}

}  // namespace

HostEnd::HostEnd(std::unique_ptr<link::HostLink> link, const ChannelLayout& layout, Clock clock, void* clock_context)
    : link_(std::move(link)),
      events_(link_->event_fd()),
      layout_(layout),
      clock_(clock),
      clock_context_(clock_context),
      memory_(link_->channel_memory().data()),
      requests_(memory_ + ChannelLayout::request_ring, layout.request_slots),
      replies_(layout.reply_slots, EntryReader::Tickets::given),
      ranges_(1),    // number 0 is never used: a hint of 0 means none
      segments_(1),  // number 0 is the channel segment
      streams_(layout.streams_max) {
  OFP_ASSERT(link_->channel_memory().size() >= layout.total_bytes());
}

HostEnd::~HostEnd() {
  if (fork_mark_.in_child())
    link_->abandon();
  else
    close(0);
}

TimeNs HostEnd::now() const { return clock_ != nullptr ? clock_(clock_context_) : monotonic_ns(); }

Status HostEnd::usable() {
  if (fork_mark_.in_child())
    return fail(Error::forked, "this channel belongs to the parent process; a forked child connects for itself");
  if (lost_) return tl::unexpected(*lost_);
  if (closed_) return fail(Error::closed, "the channel is closed");
  return {};
}

Status HostEnd::lose(Failure why) {
  if (!lost_) lost_ = std::move(why);
  events_.tell();
  next_turn();
  return tl::unexpected(*lost_);
}

// ---- the ring

std::uint64_t HostEnd::request_head() const noexcept { return load_word(memory_ + ChannelLayout::agent_line); }

bool HostEnd::fits(std::uint64_t payload_bytes, std::uint64_t spare) const noexcept {
  if (payload_bytes > wire::entry_bytes_max) [[unlikely]]
    return false;
  const bool alone = outside(payload_bytes);  // it fits if there is room for one slot
  const std::uint64_t needed = (alone ? 1 : wire::slots_for(payload_bytes)) + spare;
  const auto room = [&] {
    return requests_.position() - std::min(head_seen_, requests_.position()) + needed <= layout_.request_slots &&
           (!alone || head_seen_ >= outside_end_);
  };
  if (room()) [[likely]]
    return true;
  head_seen_ = request_head();
  return room();
}

void HostEnd::expect(Posting&, std::uint64_t payload_bytes) const noexcept {
  // The agent's core has these lines; they arrive while the request is composed.
  __builtin_prefetch(memory_ + ChannelLayout::agent_line);
  if (!outside(payload_bytes)) [[likely]]
    requests_.prefetch(payload_bytes);
}

// An agent that is awake sees it.
inline std::uint64_t HostEnd::write_request(EntryKind kind, Bytes payload, bool alone) {
  if (alone) [[unlikely]]
    std::memcpy(memory_ + layout_.outside(), payload.data(), payload.size());
  // A slot may be seen before the tail: the program's writes to its arrays come before the slot.
  std::atomic_thread_fence(std::memory_order_release);
  if (alone) [[unlikely]] {
    requests_.write_outside(static_cast<std::uint8_t>(kind), ++ticket_,
                            {static_cast<std::uint32_t>(payload.size()), crc32c(payload)});
    outside_end_ = requests_.position();
  } else {
    requests_.write(static_cast<std::uint8_t>(kind), ++ticket_, payload);
  }
  store_word(memory_ + ChannelLayout::tail_line, requests_.position());
  ++counters_.posted;
  return ticket_;
}

std::uint64_t HostEnd::publish(EntryKind kind, Bytes payload) {
  const bool alone = outside(payload.size());
  const std::uint64_t ticket = write_request(kind, payload, alone);
  fence_before_look();
  if (SleepFlag(memory_ + ChannelLayout::agent_line + offsetof(wire::AgentLine, asleep)).value() != 0) [[unlikely]]
    wake_agent();
  if (!alone)
    requests_.prefetch(
        payload.size());  // for the next one, which is often alike: the lines arrive while the program works
  return ticket;
}

// An agent that would have to read the ring over the link gets the oldest requests with the wake, once: posts that
// follow before it has taken them only wake.
void HostEnd::wake_agent() {
  ++counters_.wakes_sent;
  const std::uint64_t head = request_head(), tail = requests_.position();
  if (link_->traits().mapped || head < sent_until_) return link_->wake();
  sent_until_ = tail;
  const std::uint64_t count = std::min(tail - std::min(head, tail), wire::sent_requests_max);
  std::vector<std::byte> requests(sizeof(wire::SentRequests) + count * wire::slot_bytes);
  store(requests.data(), wire::SentRequests{head, tail, replies_.position()});
  for (std::uint64_t i = 0; i < count; ++i)
    std::memcpy(requests.data() + sizeof(wire::SentRequests) + i * wire::slot_bytes,
                memory_ + ChannelLayout::request_ring + ((head + i) & (layout_.request_slots - 1)) * wire::slot_bytes,
                wire::slot_bytes);
  link_->wake_with(requests);
}

std::uint64_t HostEnd::word_of(std::uint32_t stream, WakeWord word) const noexcept {
  switch (word) {
    case WakeWord::pulled:
      return pulled(stream);
    case WakeWord::stored:
      return stored(stream);
    case WakeWord::credit:
      return line_word(stream, offsetof(wire::CompletionLine, credit));
    case WakeWord::replies:
      return load_word(memory_ + ChannelLayout::reply_tail_line);
    case WakeWord::now:
      break;
  }
  return request_head();
}

// Asks the agent to wake this program when the word reaches `value`, or earlier: woken threads look, and ask again if
// needed. Repeating an existing request costs two loads.
void HostEnd::ask_wake(std::uint32_t stream, WakeWord word, std::uint64_t value) {
  std::uint64_t& asked =
      word == WakeWord::replies ? replies_wake_at_ : streams_[stream].wake_at[static_cast<std::size_t>(word)];
  if (asked <= value && word_of(stream, word) < asked) return;
  std::vector<std::byte> payload;
  wire::encode(wire::WakeAt{stream, word, word == WakeWord::replies ? value - 1 : value}, payload);
  if (!fits(payload.size(), 1)) return ask_room_wake();  // and afterwards for this one
  (void)publish(EntryKind::wake_at, payload);
  asked = value;
}

// Asks for a wake when the agent has taken everything that is in the ring now. The ring's last slot is reserved for
// this request.
void HostEnd::ask_room_wake() {
  if (request_head() < room_wake_at_) return;
  std::vector<std::byte> payload;
  wire::encode(wire::WakeAt{0, WakeWord::now, 0}, payload);
  if (!fits(payload.size(), 0)) return;
  (void)publish(EntryKind::wake_at, payload);
  room_wake_at_ = requests_.position();
}

// Requests a wake of each word at the smallest armed value that is not reached.
void HostEnd::ask_armed() {
  for (auto at = armed_.begin(); at != armed_.end();) {
    const auto [stream, word, value] = *at;
    if (word_of(stream, word) >= value) {
      at = armed_.erase(at);
      continue;
    }
    ask_wake(stream, word, value);
    at = armed_.lower_bound({stream, word, nobody});
  }
}

// Looks at the link, and requests the next armed wakes.
Status HostEnd::look() {
  if (auto status = link_->look(); !status) return lose(std::move(status).error());
  if (!armed_.empty()) ask_armed();
  return {};
}

Status HostEnd::make_room(Lock& lock, std::uint64_t payload_bytes, TimeNs deadline) {
  if (payload_bytes > wire::entry_bytes_max)
    return fail(Error::too_large, "a request of {} bytes; at most {} are allowed", payload_bytes,
                wire::entry_bytes_max);
  while (!fits(payload_bytes, spare_slots)) {
    if (now() >= deadline)
      return fail(deadline == 0 ? Error::would_block : Error::timeout,
                  "the request ring is full: {} of {} slots are used", requests_.position() - request_head(),
                  layout_.request_slots);
    ask_room_wake();
    OFP_TRY(drain_replies());  // the agent takes no requests while its answers find no room
    if (fits(payload_bytes, spare_slots)) break;
    OFP_TRY(sleep(lock, deadline));
  }
  return {};
}

Result<std::uint64_t> HostEnd::post_locked(Lock& lock, EntryKind kind, Bytes payload, TimeNs deadline) {
  OFP_TRY(usable());
  if (!fits(payload.size(), spare_slots)) [[unlikely]]
    OFP_TRY(make_room(lock, payload.size(), deadline));
  return publish(kind, payload);
}

Result<std::uint64_t> HostEnd::post(EntryKind kind, Bytes payload, TimeNs deadline) {
  Lock lock(mutex_);
  return post_locked(lock, kind, payload, deadline);
}

// ---- what the agent wrote

Status HostEnd::drain_replies() {
  const std::uint64_t tail = load_word(memory_ + ChannelLayout::reply_tail_line);
  if (tail == replies_.position()) return {};
  if (tail < replies_.position() || tail - replies_.position() > layout_.reply_slots)
    return lose({Error::protocol, fmt::format("the reply ring's tail is {}, its head {}, its size {}", tail,
                                              replies_.position(), layout_.reply_slots)});
  const std::byte* ring = memory_ + layout_.reply_ring();
  while (replies_.position() < tail) {
    wire::Slot slot;
    std::memcpy(&slot, ring + (replies_.position() & (layout_.reply_slots - 1)) * wire::slot_bytes, sizeof slot);
    if (!replies_.verifies(slot)) return lose(replies_.explain(slot));
    Entry entry;
    auto complete = replies_.take(slot, entry);
    if (!complete) return lose(std::move(complete).error());
    if (!*complete) continue;
    if (entry.outside) return lose({Error::protocol, "a reply lies outside of its ring"});
    const std::uint64_t ticket = entry.ticket;
    if (ticket > ticket_)
      return lose({Error::protocol, fmt::format("a reply to ticket {}, the newest is {}", ticket, ticket_)});
    const auto kind = static_cast<wire::ReplyKind>(entry.kind);
    if (const auto awaited = awaited_.find(ticket); awaited != awaited_.end()) {
      awaited->second = Reply{kind, {entry.payload.begin(), entry.payload.end()}, ticket};
      continue;
    }
    wire::Failed failed{};
    if (kind != wire::ReplyKind::failed || !wire::decode(entry.payload, failed)) continue;  // the call was abandoned
    ++counters_.failed;
    if (failures_.emplace(ticket, Failure{failed.code, std::string(failed.message)}).second)
      failures_order_.push_back(ticket);
    while (failures_order_.size() > failures_max) {
      failures_.erase(failures_order_.front());
      failures_order_.pop_front();
    }
  }
  store_word(memory_ + ChannelLayout::tail_line + offsetof(wire::TailLine, reply_head), replies_.position());
  return {};
}

Status HostEnd::take_failure(std::uint64_t ticket) {
  const auto at = failures_.find(ticket);
  if (at == failures_.end()) return {};
  return tl::unexpected(at->second);  // kept: both pulled and stored report it
}

// A pause between two looks of a wait that began at `since`.
void HostEnd::spin(Lock& lock, TimeNs since, TimeNs time) {
  lock.unlock();
  if (time - since >= spin_alone_ns)
    sched_yield();
  else
    for (int i = 0; i < 16; ++i) relax();
  lock.lock();
}

// Waits until `there` returns a result or the deadline passes.
template <class There>
Status HostEnd::await_replies(Lock& lock, TimeNs deadline, const There& there) {
  const TimeNs spin_until = clock_ != nullptr ? 0 : now() + spin_ns;
  while (true) {
    OFP_TRY(drain_replies());
    if (there()) return {};
    if (const TimeNs time = now(); time >= deadline) {
      return fail(Error::timeout, "the agent did not answer in time");
    } else if (time < spin_until) {
      spin(lock, spin_until - spin_ns, time);
      continue;
    }
    ask_replies_wake();
    if (load_word(memory_ + ChannelLayout::reply_tail_line) != replies_.position()) continue;
    OFP_TRY(sleep(lock, deadline));
  }
}

Result<Reply> HostEnd::call(EntryKind kind, Bytes payload, TimeNs deadline) {
  Lock lock(mutex_);
  OFP_ASSIGN(const std::uint64_t ticket, post_locked(lock, kind, payload, deadline));
  awaited_.emplace(ticket, std::nullopt);
  const Status awaited = await_replies(lock, deadline, [&] { return awaited_.at(ticket).has_value(); });
  const auto at = awaited_.find(ticket);
  if (!awaited) {
    awaited_.erase(at);
    return tl::unexpected(awaited.error());
  }
  Reply reply = std::move(*at->second);
  awaited_.erase(at);
  return unfailed(std::move(reply));
}

// ---- asking without waiting

Result<std::uint64_t> HostEnd::ask(EntryKind kind, Bytes payload, TimeNs deadline) {
  Lock lock(mutex_);
  OFP_ASSIGN(const std::uint64_t ticket, post_locked(lock, kind, payload, deadline));
  awaited_.emplace(ticket, std::nullopt);
  return ticket;
}

Result<std::uint64_t> HostEnd::ask_without_wake(EntryKind kind, Bytes payload, TimeNs deadline) {
  if (!link_->traits().mapped) return ask(kind, payload, deadline);
  Lock lock(mutex_);
  OFP_TRY(usable());
  if (!fits(payload.size(), spare_slots)) OFP_TRY(make_room(lock, payload.size(), deadline));
  const std::uint64_t ticket = write_request(kind, payload, outside(payload.size()));
  awaited_.emplace(ticket, std::nullopt);
  return ticket;
}

Result<std::optional<std::uint64_t>> HostEnd::wait_reply(std::span<const std::uint64_t> tickets, TimeNs deadline) {
  Lock lock(mutex_);
  OFP_TRY(usable());
  std::optional<std::uint64_t> found;
  std::optional<std::uint64_t> began;
  const Status awaited = await_replies(lock, deadline, [&] {
    for (const std::uint64_t ticket : tickets) {
      const auto at = awaited_.find(ticket);
      if (at == awaited_.end()) return true;  // another thread has taken it: the caller looks again
      if (!at->second) continue;
      found = ticket;
      return true;
    }
    if (!began) began = replies_.position();
    return *began != replies_.position();
  });
  if (!awaited && awaited.error().code != Error::timeout) return tl::unexpected(awaited.error());
  return found;
}

Status HostEnd::take_in() {
  Lock lock(mutex_);
  OFP_TRY(usable());
  return drain_replies();
}

std::optional<Reply> HostEnd::take_reply(std::uint64_t ticket) {
  Lock lock(mutex_);
  const auto at = awaited_.find(ticket);
  if (at == awaited_.end() || !at->second) return std::nullopt;
  std::optional<Reply> reply = std::move(at->second);
  awaited_.erase(at);
  return reply;
}

void HostEnd::forget(std::uint64_t ticket) {
  Lock lock(mutex_);
  awaited_.erase(ticket);
}

bool HostEnd::has_room(std::uint64_t payload_bytes) {
  Lock lock(mutex_);
  return fits(payload_bytes + 2 * wire::slot_payload_bytes, spare_slots);
}

// The agent continues only if there is room for its replies: these are taken in meanwhile.
Status HostEnd::wait_room(std::uint64_t payload_bytes, TimeNs deadline) {
  Lock lock(mutex_);
  OFP_TRY(usable());
  const std::uint64_t began = replies_.position();
  while (true) {
    OFP_TRY(drain_replies());
    if (fits(payload_bytes, spare_slots) || replies_.position() != began || now() >= deadline) return {};
    ask_room_wake();
    ask_replies_wake();
    if (fits(payload_bytes, spare_slots) || load_word(memory_ + ChannelLayout::reply_tail_line) != replies_.position())
      continue;
    OFP_TRY(sleep(lock, deadline));
  }
}

void HostEnd::arm_room() {
  Lock lock(mutex_);
  watched_ = true;
  if (usable()) ask_room_wake();
}

bool HostEnd::arm_replies() {
  Lock lock(mutex_);
  if (!usable()) return false;
  watched_ = true;
  ask_replies_wake();
  return load_word(memory_ + ChannelLayout::reply_tail_line) == replies_.position();
}

// ---- streams

std::uint64_t HostEnd::line_word(std::uint32_t stream, std::size_t word) const noexcept {
  return load_word(memory_ + layout_.completion_line(stream) + word);
}

std::uint64_t HostEnd::pulled(std::uint32_t stream) const noexcept {
  return line_word(stream, offsetof(wire::CompletionLine, pulled));
}

std::uint64_t HostEnd::stored(std::uint32_t stream) const noexcept {
  return line_word(stream, offsetof(wire::CompletionLine, stored));
}

std::uint64_t HostEnd::progress_of(std::uint32_t stream, Progress progress) const noexcept {
  return progress == Progress::pulled ? pulled(stream) : stored(stream);
}

std::uint64_t HostEnd::credit_left(std::uint32_t stream) const {
  Lock lock(mutex_);
  const std::uint64_t credit = line_word(stream, offsetof(wire::CompletionLine, credit));
  return credit - std::min(credit, streams_[stream].charged);
}

Result<wire::Opened> HostEnd::open_stream(wire::OpenStream& open, TimeNs deadline) {
  {
    Lock lock(mutex_);
    OFP_TRY(usable());
    const auto unused = std::ranges::find_if(streams_, [](const Stream& stream) { return !stream.open; });
    if (unused == streams_.end())
      return fail(Error::too_large, "{} streams are open, which is the limit of this channel", streams_.size());
    open.stream = static_cast<std::uint32_t>(unused - streams_.begin());
    *unused = {.open = true};
  }
  std::vector<std::byte> payload;
  wire::encode(open, payload);
  auto reply = call(EntryKind::open_stream, payload, deadline);
  wire::Opened opened{};
  if (reply && reply->kind == wire::ReplyKind::opened && wire::decode(reply->payload, opened)) return opened;
  Lock lock(mutex_);
  // A late answer could still open the stream, so its number stays taken unless the agent refused.
  if (!reply && reply.error().code != Error::timeout && !is_interrupted(reply)) streams_[open.stream].open = false;
  if (!reply) return tl::unexpected(std::move(reply).error());
  return fail(Error::protocol, "the agent answered the opening of a stream with reply kind {}",
              static_cast<int>(reply->kind));
}

Status HostEnd::close_stream(std::uint32_t stream, TimeNs deadline) {
  {
    Lock lock(mutex_);
    OFP_TRY(usable());
    if (const std::uint64_t last = streams_[stream].last_ticket; last != 0) {
      auto status = wait_locked(lock, stream, last, Progress::pulled, deadline);
      if (!status && (status.error().code == Error::timeout || is_interrupted(status) || lost_)) return status;
    }
  }
  std::vector<std::byte> payload;
  wire::encode(wire::CloseStream{stream}, payload);
  auto reply = call(EntryKind::close_stream, payload, deadline);
  if (!reply) return tl::unexpected(std::move(reply).error());
  Lock lock(mutex_);
  // The next stream of this number starts its line at 0, so no lease may refer to the old one.
  for (auto* table : {&ranges_, &segments_})
    for (Region& region : *table) region.leases.forget(stream);
  armed_.erase(armed_.lower_bound({stream, WakeWord::pulled, 0}),
               armed_.lower_bound({stream + 1, WakeWord::pulled, 0}));
  streams_[stream] = {};
  return {};
}

Status HostEnd::make_credit(Lock& lock, std::uint32_t stream, std::uint64_t charge, TimeNs deadline) {
  constexpr std::size_t credit_at = offsetof(wire::CompletionLine, credit);
  if (charge > welcome().memory_bytes_max)
    return fail(Error::too_large, "the batch may take {} bytes of the agent's memory, which has {} in all", charge,
                welcome().memory_bytes_max);
  while (true) {
    const std::uint64_t wanted = streams_[stream].charged + charge;
    const std::uint64_t credit = line_word(stream, credit_at);
    if (wanted <= credit) return {};
    // Credit is requested even if the caller does not wait: it is there when the caller comes back.
    if (streams_[stream].credit_asked < wanted) {
      std::vector<std::byte> payload;
      wire::encode(wire::NeedCredit{stream, wanted}, payload);
      if (fits(payload.size(), spare_slots)) {
        (void)publish(EntryKind::need_credit, payload);
        streams_[stream].credit_asked = wanted;
      }
    }
    if (now() >= deadline)
      return fail(
          deadline == 0 ? Error::would_block : Error::timeout,
          "no credit: the batch needs {} bytes of the agent's memory, {} are free for this stream; drop frames, "
          "or open the stream with `keep`",
          charge, credit - std::min(credit, streams_[stream].charged));
    ask_wake(stream, WakeWord::credit, wanted);
    OFP_TRY(drain_replies());
    if (line_word(stream, credit_at) >= wanted) return {};
    ++streams_[stream].credit_waiters;
    const Status slept = sleep(lock, deadline);
    --streams_[stream].credit_waiters;
    OFP_TRY(slept);
  }
}

void HostEnd::give_up_credit(Posting&, std::uint32_t stream) {
  Stream& state = streams_[stream];
  if (lost_ || !state.open || state.credit_waiters > 0 || state.credit_asked == 0) return;
  std::vector<std::byte> payload;
  wire::encode(wire::NeedCredit{stream, state.charged}, payload);
  if (!fits(payload.size(), spare_slots)) return;  // the next send asks for more in any case
  (void)publish(EntryKind::need_credit, payload);
  state.credit_asked = 0;
}

Result<std::uint64_t> HostEnd::post_data(Posting& posting, EntryKind kind, std::uint32_t stream, Bytes payload,
                                         std::uint64_t charge, std::uint64_t bytes, std::span<const RangeName> uses,
                                         TimeNs deadline) {
  Lock& lock = posting.lock;
  OFP_TRY(usable());
  Stream& state = streams_[stream];
  if (!state.open) return fail(Error::closed, "the stream is closed");
  while (true) {
    if (state.charged + charge > state.credit_seen) [[unlikely]] {
      state.credit_seen = line_word(stream, offsetof(wire::CompletionLine, credit));
      if (state.charged + charge > state.credit_seen) OFP_TRY(make_credit(lock, stream, charge, deadline));
    }
    if (fits(payload.size(), spare_slots)) [[likely]]
      break;
    OFP_TRY(make_room(lock, payload.size(), deadline));  // another thread may have spent the credit meanwhile
  }
  // Checked under the lock, so that no memory can be withdrawn before the post.
  for (const RangeName& use : uses) OFP_TRY(check_announced(use));
  const std::uint64_t ticket = publish(kind, payload);
  state.charged += charge;
  state.last_ticket = ticket;
  counters_.bytes_posted += bytes;
  for (const RangeName& use : uses) find(use.region)->leases.add(stream, ticket);
  return ticket;
}

Status HostEnd::wait_locked(Lock& lock, std::uint32_t stream, std::uint64_t ticket, Progress progress,
                            TimeNs deadline) {
  const TimeNs spin_until = clock_ != nullptr ? 0 : now() + spin_ns;
  while (progress_of(stream, progress) < ticket) {
    const TimeNs time = now();
    if (time >= deadline)
      return fail(Error::timeout, "ticket {} is not {} in time; {} is the newest that is", ticket,
                  progress == Progress::pulled ? "pulled" : "stored", progress_of(stream, progress));
    if (time < spin_until) {
      spin(lock, spin_until - spin_ns, time);
      OFP_TRY(usable());
      continue;
    }
    ask_wake(stream, wake_word(progress), ticket);
    OFP_TRY(drain_replies());  // the agent takes no requests while its answers find no room
    if (progress_of(stream, progress) >= ticket) break;
    OFP_TRY(sleep(lock, deadline));
  }
  // Fetched now, while the line is in this core's cache.
  streams_[stream].credit_seen = line_word(stream, offsetof(wire::CompletionLine, credit));
  OFP_TRY(drain_replies());
  return take_failure(ticket);
}

Status HostEnd::wait(std::uint32_t stream, std::uint64_t ticket, Progress progress, TimeNs deadline) {
  Lock lock(mutex_);
  OFP_TRY(usable());
  if (ticket > ticket_) return fail(Error::invalid, "ticket {} does not exist; the newest is {}", ticket, ticket_);
  return wait_locked(lock, stream, ticket, progress, deadline);
}

Status HostEnd::arm(std::uint32_t stream, std::uint64_t ticket, Progress progress) {
  Lock lock(mutex_);
  OFP_TRY(usable());
  watched_ = true;
  armed_.emplace(stream, wake_word(progress), ticket);
  ask_wake(stream, wake_word(progress), ticket);
  return {};
}

Result<Fd> HostEnd::take_descriptor(std::uint64_t ticket, TimeNs deadline) {
  Lock lock(mutex_);
  OFP_TRY(usable());
  return link_->take_descriptor(ticket, deadline);
}

Result<std::uint64_t> HostEnd::offer(int fd) {
  Lock lock(mutex_);
  OFP_TRY(usable());
  OFP_TRY(link_->offer(++offers_, fd));
  return offers_;
}

HostCounters HostEnd::counters() const {
  Lock lock(mutex_);
  HostCounters counters = counters_;
  for (std::uint32_t stream = 0; stream < streams_.size(); ++stream)
    if (streams_[stream].open) counters.pulled = std::max(counters.pulled, pulled(stream));
  return counters;
}

void HostEnd::close(TimeNs wait_ns) {
  Lock lock(mutex_);
  if (closed_) return;
  const TimeNs deadline = deadline_after(now(), wait_ns);
  for (std::uint32_t stream = 0; stream < streams_.size() && usable() && wait_ns > 0; ++stream)
    if (streams_[stream].open && streams_[stream].last_ticket != 0)
      (void)wait_locked(lock, stream, streams_[stream].last_ticket, Progress::pulled, deadline);
  closed_ = true;
  events_.tell();
  next_turn();
  link_->close();
}

}  // namespace offpath::channel
