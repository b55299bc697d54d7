#include "group/reach.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "base/backoff.h"
#include "base/log.h"
#include "wire/messages/replies.h"

namespace offpath::group {

using channel::HostEnd;
using channel::Reply;

namespace {

constexpr std::size_t retiring_max = 4096;  // of one member; far fewer than it takes (CardAgentLink)

// A failure about a member begins with its name.
Failure naming(const std::string& who, const Failure& why) {
  return {why.code, why.message.find(who) == std::string::npos ? fmt::format("{}: {}", who, why.message) : why.message};
}

Result<Answer> outcome_of(Reply reply) {
  if (reply.kind != wire::ReplyKind::failed) return Answer{reply.kind, std::move(reply.payload), {}};
  wire::Failed failed{};
  OFP_TRY(wire::decode(reply.payload, failed));
  return tl::unexpected(Failure{failed.code, std::string(failed.message)});
}

}  // namespace

Reach::Reach(Surroundings surroundings, const ReachOptions& options)
    : surroundings_(std::move(surroundings)), options_(options) {}

Reach::~Reach() {
  for (auto& [address, peer] : peers_) disconnect(*peer);
}

std::string Reach::text_of(const Peer& peer) {
  return peer.name.empty() ? fmt::format("the member at {}", peer.address)
                           : fmt::format("member {} at {}", peer.name, peer.address);
}

void Reach::post(const std::string& name, const std::string& address, Request request) {
  std::unique_ptr<Peer>& peer = peers_[address];
  if (!peer) {
    peer = std::make_unique<Peer>();
    peer->address = address;
  }
  if (!name.empty()) peer->name = name;
  if (request.body.size() > body_bytes_max) {
    const Failure why{Error::too_large,
                      fmt::format("a body of {} bytes, at most {} are allowed", request.body.size(), body_bytes_max)};
    return refuse(*peer, std::move(request), why);
  }
  if (peer->queued.size() >= options_.queued_max)
    return refuse(
        *peer, std::move(request),
        {Error::would_block, fmt::format("{} requests wait for it, which is the limit", peer->queued.size())});
  const std::uint64_t number = ++posted_;
  peer->deadlines.set(number, request.deadline);
  peer->queued.emplace(number, std::move(request));
  peer->fresh = attention_ = true;
}

// The next poll reports it.
void Reach::refuse(const Peer& peer, Request request, const Failure& why) {
  dropped_.emplace_back(std::move(request), naming(text_of(peer), why));
}

void Reach::finish(Request request, Result<Answer> answer, TimeNs now) {
  if (!request.answer) return;  // its deadline has passed, which was reported
  ++(answer ? counters_.answered : counters_.failed);
  request.answer(std::move(answer), now);
}

// ---- connections

void Reach::connect(Peer& peer, TimeNs now) {
  peer.connecting = true;
  peer.number = ++attempts_;
  ++counters_.connects;
  // The job owns its objects until it is done; it does not refer to this object.
  auto attempt = std::make_shared<Attempt>();
  surroundings_.start_job(
      [attempt, connect = surroundings_.connect, address = peer.address,
       deadline = deadline_after(now, options_.connect_wait_ns)]() -> Status {
        OFP_ASSIGN(attempt->end, connect(address, deadline));
        return {};
      },
      [this, attempt, address = peer.address, number = peer.number](const Status& status, TimeNs later) {
        connected(address, number, std::move(*attempt), status, later);
      });
}

void Reach::connected(const std::string& address, std::uint64_t number, Attempt attempt, const Status& status,
                      TimeNs now) {
  const auto at = peers_.find(address);
  if (at == peers_.end() || at->second->number != number || !at->second->connecting) return;  // dropped meanwhile
  Peer& peer = *at->second;
  peer.connecting = false;
  attention_ = true;
  if (!status) {
    ++counters_.connect_failures;
    peer.last_failure = naming(text_of(peer), status.error());
    log_refusal(peer, status.error());
    peer.retry_at = now + backoff_ns(options_.retry_min_ns, peer.failures++, options_.retry_max_ns);
    return;
  }
  peer.logged.clear();
  peer.end = std::move(attempt.end);
  peer.used_at = now;
  peer.stays = false;
  watch(peer);
  peer.fresh = !peer.queued.empty();  // the request that needed it may have ended meanwhile
  peer.failures = 0;
  ++counters_.channels;
  if (on_connected) on_connected(address, peer.end->welcome().incarnation);
}

void Reach::watch(Peer& peer) {
  peer.readable = true;
  peer.watched =
      surroundings_.watch(peer.end->event_fd(), [this, &peer] { peer.readable = attention_ = true; }).has_value();
}

// Makes the outbox that a request waits for, or gives back an unused one. True if that has begun.
bool Reach::change_outbox(Peer& peer, TimeNs now) {
  if (peer.copied != 0) peer.outbox_used_at = now;
  const bool makes = peer.outbox == 0;
  if (makes ? peer.outbox_for == 0 : now - peer.outbox_used_at < options_.outbox_idle_ns) return false;
  if (peer.watched) surroundings_.unwatch(peer.end->event_fd());
  peer.watched = false;
  peer.lent = true;
  peer.number = ++attempts_;
  auto attempt = std::make_shared<Attempt>(Attempt{std::move(peer.end), peer.outbox});
  surroundings_.start_job(
      [attempt, makes, deadline = deadline_after(now, options_.connect_wait_ns)]() -> Status {
        if (makes) {
          OFP_ASSIGN(attempt->outbox, attempt->end->allocate(outbox_bytes, deadline));
        } else {
          attempt->end->free(std::exchange(attempt->outbox, 0));
        }
        return {};
      },
      [this, attempt, address = peer.address, number = peer.number](const Status& status, TimeNs later) {
        give_back(address, number, std::move(*attempt), status, later);
      });
  return true;
}

void Reach::give_back(const std::string& address, std::uint64_t number, Attempt attempt, const Status& status,
                      TimeNs now) {
  const auto at = peers_.find(address);
  if (at == peers_.end() || at->second->number != number || !at->second->lent) return;  // dropped meanwhile
  Peer& peer = *at->second;
  peer.lent = false;
  peer.end = std::move(attempt.end);
  if (peer.outbox == 0 && attempt.outbox != 0) ++counters_.outboxes;
  if (peer.outbox != 0 && attempt.outbox == 0) --counters_.outboxes;
  peer.outbox = attempt.outbox;
  peer.outbox_used_at = now;
  watch(peer);
  peer.fresh = !peer.queued.empty();
  attention_ = true;
  const std::uint64_t waiting = std::exchange(peer.outbox_for, 0);
  if (status) return;
  // If the channel has ended, the next look shows it. Otherwise only this request has failed.
  auto failed = peer.queued.extract(waiting);
  if (!failed) return;
  peer.deadlines.erase(waiting);
  refuse(peer, std::move(failed.mapped()), status.error());
}

// A wrong key, certificate or version is permanent. A missing answer is usual: members start and stop.
void Reach::log_refusal(Peer& peer, const Failure& why) {
  if (why.code == Error::peer_lost || why.code == Error::timeout || why.code == Error::would_block) return;
  if (std::exchange(peer.logged, why.message) != why.message)
    log(LogLevel::warning, "cannot connect: {}", peer.last_failure.message);
}

void Reach::disconnect(Peer& peer) {
  peer.connecting = false;
  if (!peer.end && !peer.lent) return;
  if (peer.watched) surroundings_.unwatch(peer.end->event_fd());
  peer.watched = false;
  if (peer.end) peer.end->close(0);
  peer.end.reset();
  if (std::exchange(peer.outbox, 0) != 0) --counters_.outboxes;
  peer.outbox_for = 0;
  peer.lent = false;  // the job closes it
  peer.retiring.clear();
  --counters_.channels;
}

bool Reach::is_idle(const Peer& peer, TimeNs now) const noexcept {
  return peer.end && !peer.stays && peer.outbox == 0 && peer.queued.empty() && peer.asked.empty() &&
         peer.retiring.empty() && now - peer.used_at >= options_.channel_idle_ns;
}

// Closing is normally immediate, but a connection over a network may be stuck: a job closes it.
void Reach::end_idle(Peer& peer) {
  if (peer.watched) surroundings_.unwatch(peer.end->event_fd());
  --counters_.channels;
  surroundings_.start_job(
      [end = std::shared_ptr(std::move(peer.end))]() -> Status {
        end->close(0);
        return {};
      },
      [](const Status&, TimeNs) {});
}

void Reach::lose(Peer& peer, const Failure& why, TimeNs now) {
  ++counters_.lost;
  const std::uint64_t process = peer.end->welcome().incarnation;
  peer.last_failure = naming(text_of(peer), why);
  disconnect(peer);
  peer.retry_at = now + options_.retry_min_ns;
  // These may have been served before the end, so they are not repeated.
  std::map<std::uint64_t, Asked> asked = std::exchange(peer.asked, {});
  peer.urgent = peer.copied = 0;
  for (const auto& [number, each] : asked) peer.deadlines.erase(number);
  for (auto& [number, each] : asked) finish(std::move(each.request), tl::unexpected(peer.last_failure), now);
  if (on_lost) on_lost(peer.address, process, peer.last_failure, now);
}

void Reach::drop(const std::string& address, const Failure& why) {
  const auto node = peers_.extract(address);
  if (!node) return;
  Peer& peer = *node.mapped();
  disconnect(peer);
  const Failure named = naming(text_of(peer), why);
  for (auto& [number, each] : peer.asked) dropped_.emplace_back(std::move(each.request), named);
  for (auto& [number, each] : peer.queued) dropped_.emplace_back(std::move(each), named);
}

// ---- rounds

bool Reach::poll(TimeNs now) {
  if (!attention_ && dropped_.empty()) return false;
  attention_ = urgent_ = false;
  bool did = !dropped_.empty();
  for (auto& [request, why] : std::exchange(dropped_, {})) finish(std::move(request), tl::unexpected(why), now);
  // Answers may post, also to new peers: look the next one up again.
  for (auto at = peers_.begin(); at != peers_.end();) {
    Peer& peer = *at->second;
    did |= work(peer, now);
    if (is_idle(peer, now)) {
      end_idle(peer);
      at = peers_.erase(at);
      continue;
    }
    attention_ |= !peer.queued.empty() || !peer.asked.empty() || peer.readable ||
                  (!peer.retiring.empty() && (!peer.watched || !peer.retiring.back().told));
    at = peers_.upper_bound(peer.address);
  }
  return did;
}

bool Reach::work(Peer& peer, TimeNs now) {
  bool did = false;
  if (peer.end) {
    Status status;
    const bool looked = std::exchange(peer.readable, !peer.watched);
    if (looked)
      status = peer.end->poll();
    else if (!peer.asked.empty())
      status = peer.end->take_in();
    if (!status) {
      lose(peer, status.error(), now);
      return true;
    }
    if (!peer.asked.empty()) did |= take_answers(peer, now);
    if (!peer.retiring.empty()) did |= withdraw(peer, looked);
    if (!peer.queued.empty()) did |= ask_queued(peer, now);
    peer.end->withdraw_outside(now - options_.outbox_idle_ns);
    did |= change_outbox(peer, now);
  } else if (!peer.queued.empty() && !peer.connecting && !peer.lent && now >= peer.retry_at) {
    connect(peer, now);
    did = true;
  }
  return end_late(peer, now) || did;
}

bool Reach::take_answers(Peer& peer, TimeNs now) {
  std::vector<std::pair<Asked, Reply>> taken;
  for (auto at = peer.asked.begin(); at != peer.asked.end();) {
    auto reply = peer.end->take_reply(at->second.ticket);
    if (!reply) {
      ++at;
      continue;
    }
    peer.deadlines.erase(at->first);
    if (at->second.length != 0) --peer.copied;
    if (!at->second.request.answer_can_wait) {
      --peer.urgent;
      urgent_ = true;
    }
    taken.emplace_back(std::move(at->second), std::move(*reply));
    at = peer.asked.erase(at);
  }
  if (!taken.empty()) peer.used_at = now;
  const MutableBytes outbox = peer.outbox != 0 ? peer.end->segment(peer.outbox) : MutableBytes{};
  for (auto& [asked, reply] : taken) {
    if (asked.range.region != 0) peer.retiring.push_back({asked.range, asked.request.owner});
    auto outcome = outcome_of(std::move(reply));
    if (!outcome) outcome = tl::unexpected(naming(text_of(peer), outcome.error()));
    // The member does not write there any more, and no other request used this room. The request waits for the next
    // round.
    else if (asked.request.inbox_bytes != 0)
      outcome->inbox = outbox.subspan(asked.inbox_at, asked.request.inbox_bytes);
    finish(std::move(asked.request), std::move(outcome), now);
  }
  return !taken.empty();
}

// True if some were removed. The member confirms by an event, and only then is each checked again.
bool Reach::withdraw(Peer& peer, bool looked) {
  if (!looked && peer.retiring.back().told) return false;
  return std::erase_if(peer.retiring, [&](Retiring& each) {
           if (!each.told) {
             if (!peer.end->has_room(0)) return false;
             (void)peer.end->withdraw(each.range);  // fails only with the channel
             each.told = true;
           } else if (!looked) {
             return false;
           }
           return peer.end->is_withdrawn(each.range);
         }) != 0;
}

// The place of `length` bytes in the outbox that no request uses; nothing if there is no room. `asked` is in the order
// of posting, not of places.
std::optional<std::uint64_t> Reach::find_room(const Peer& peer, std::uint64_t length) {
  if (length == 0) return 0;
  if (peer.outbox == 0) return std::nullopt;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> used;
  for (const auto& [number, each] : peer.asked)
    if (each.length != 0) used.emplace_back(each.at, each.length);
  std::ranges::sort(used);
  std::uint64_t from = 0;
  for (const auto& [at, bytes] : used) {
    if (at - from >= length) return from;
    from = at + align_up(bytes, 64);
  }
  if (from + length > outbox_bytes) return std::nullopt;
  return from;
}

// The member's access to an object that is not copied.
Status Reach::name_object(Peer& peer, const Request& request, Named& named, HostEnd::RangeName& range) {
  if (!peer.end->traits().staged) {
    if (peer.retiring.size() >= retiring_max)
      return fail(Error::would_block, "{} ranges wait to be withdrawn", peer.retiring.size());
    OFP_ASSIGN(range, peer.end->announce(request.object.data(), request.object.size()));
    named.bytes = {
        .region = range.region, .generation = range.generation, .offset = 0, .length = request.object.size()};
    return {};
  }
  const int fd = request.object_fd ? request.object_fd() : -1;
  if (fd < 0)
    return fail(Error::unsupported, "an object that lies in no file of its own cannot be read by this member: {}",
                peer.end->traits().reason);
  OFP_ASSIGN(named.offer, peer.end->offer(fd));
  named.bytes.length = request.object.size();
  return {};
}

Status Reach::ask(Peer& peer, std::uint64_t number, Request& request) {
  const bool copied = request.object.size() <= copied_bytes_max;
  const Bytes body = request.body.empty() && copied ? request.object : Bytes(request.body);
  const std::uint64_t inbox_from = align_up(body.size(), 64), length = inbox_from + request.inbox_bytes;
  const auto at = find_room(peer, length);
  if (!at) {
    if (peer.outbox == 0) peer.outbox_for = number;
    return fail(Error::would_block, "the outbox is full, or still to be made");
  }
  if (!peer.end->has_room(request.payload_bytes)) return fail(Error::would_block, "the ring is full");
  Named named;
  HostEnd::RangeName range{};
  if (!body.empty()) {
    std::memcpy(peer.end->segment(peer.outbox).data() + *at, body.data(), body.size());
    named.bytes = {.region = peer.outbox, .generation = 0, .offset = *at, .length = body.size()};
  } else if (!copied) {
    // Named memory has to be withdrawn if the request then finds no room. So its length, which does not depend on
    // names, is computed first.
    std::vector<std::byte> trial;
    if (request.compose) request.compose(named, trial);
    if (!peer.end->has_room(trial.size())) return fail(Error::would_block, "the ring is full");
    OFP_TRY(name_object(peer, request, named, range));
  }
  if (request.inbox_bytes != 0)
    named.inbox = {.region = peer.outbox, .generation = 0, .offset = *at + inbox_from, .length = request.inbox_bytes};
  std::vector<std::byte> payload;
  if (request.compose) request.compose(named, payload);
  auto ticket =
      request.can_wait ? peer.end->ask_without_wake(request.kind, payload) : peer.end->ask(request.kind, payload);
  if (!ticket) {
    if (range.region != 0) peer.retiring.push_back({range, request.owner});
    return tl::unexpected(std::move(ticket).error());
  }
  ++counters_.asked;
  peer.stays |= !request.leaves_nothing;
  request.body = {};
  if (!request.answer_can_wait) {
    ++peer.urgent;
    urgent_ = true;
  }
  if (length != 0) ++peer.copied;
  peer.asked.emplace(number, Asked{*ticket, std::move(request), *at, length, *at + inbox_from, range});
  return {};
}

bool Reach::ask_queued(Peer& peer, TimeNs now) {
  bool did = false;
  peer.fresh = false;
  while (!peer.queued.empty()) {
    const auto next = peer.queued.begin();
    Status asked = ask(peer, next->first, next->second);
    if (!asked && asked.error().code == Error::would_block) break;
    Request request = std::move(next->second);  // empty, if it was asked
    if (!asked) peer.deadlines.erase(next->first);
    peer.queued.erase(next);
    if (!asked) finish(std::move(request), tl::unexpected(naming(text_of(peer), asked.error())), now);
    did = true;
  }
  return did;
}

bool Reach::end_late(Peer& peer, TimeNs now) {
  std::vector<std::pair<Request, Failure>> late;
  for (const std::uint64_t number : peer.deadlines.take(now)) {
    if (const auto asked = peer.asked.find(number); asked != peer.asked.end()) {
      // The member may still read the request's body, so it stays until the answer comes, which is dropped, or the
      // channel ends.
      Request over;
      over.answer = std::exchange(asked->second.request.answer, {});
      late.emplace_back(std::move(over), naming(text_of(peer), {Error::timeout, "it has not answered in time"}));
      continue;
    }
    const Failure why = peer.end    ? Failure{Error::timeout, "its ring had no room in time"}
                        : peer.lent ? Failure{Error::timeout, "the memory for its requests was not made in time"}
                                    : peer.last_failure;
    late.emplace_back(std::move(peer.queued.extract(number).mapped()), naming(text_of(peer), why));
  }
  for (auto& [request, why] : late) finish(std::move(request), tl::unexpected(why), now);
  return !late.empty();
}

bool Reach::fall_asleep(TimeNs) {
  if (!dropped_.empty()) return false;
  for (auto& [address, peer] : peers_) {
    if (!peer->end) continue;  // next_deadline has the next attempt; a job's end wakes the loop
    // Queued requests that are not fresh wait for room, which an answer makes.
    if (!peer->watched || peer->readable || peer->fresh) return false;
    // The member confirms by an event.
    if (!peer->retiring.empty() && !peer->retiring.back().told) return false;
    if (!peer->queued.empty() && peer->urgent == 0 && peer->retiring.empty()) return false;
    if (peer->urgent != 0 && !peer->end->arm_replies()) return false;
  }
  return true;
}

TimeNs Reach::next_deadline() const {
  TimeNs first = never;
  for (const auto& [address, peer] : peers_) {
    if (!peer->end && !peer->connecting && !peer->lent && !peer->queued.empty())
      first = std::min(first, peer->retry_at);
    first = std::min(first, peer->deadlines.first());
  }
  return first;
}

}  // namespace offpath::group
