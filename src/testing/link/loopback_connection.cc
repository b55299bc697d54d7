#include "testing/link/loopback_connection.h"

#include <fcntl.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "link/local/sealed_memory.h"
#include "wire/region.h"
#include "wire/stale_range.h"

namespace offpath::link {

namespace {

constexpr std::uint64_t cache_line_bytes = 64;  // a read sees each line at one moment
constexpr std::uint64_t word_bytes = 8;         // a write changes each aligned word at one moment
constexpr std::uint64_t cuts_max = 5;

Result<Fd> duplicate(int fd) {
  Fd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy) return fail_errno(errno, "duplicating a descriptor");
  return copy;
}

}  // namespace

TimeNs Latency::draw(SeededRandom& random) const noexcept {
  const bool slow = random.chance(slow_probability);
  return random.between(min_ns, std::max(max_ns, slow ? slow_max_ns : 0));
}

LoopbackConnection::LoopbackConnection(std::shared_ptr<LoopbackFabric> fabric, const LoopbackOptions& options)
    : fabric_(std::move(fabric)),
      options_(options),
      random_(fabric_->split_random()),
      event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  traits_ = {.name = "loopback",
             .one_sided = options.one_sided,
             .staged = options.staged,
             .host_threads = 0,
             .reason = fmt::format("both ends are in one process, in virtual time; segments are {}",
                                   options.mapped ? "mapped" : "reached by operations"),
             .mapped = options.mapped};
  options_.welcome.direct = options.staged ? 0 : 1;
  options_.welcome.reason = traits_.reason;
}

// ---- order of operations, and delays

bool LoopbackConnection::blocked(Way way) const noexcept {
  if (partitioned_) return true;
  switch (way) {
    case operations:
      return host_stopped_ && !options_.one_sided;
    case to_agent:
      return agent_stopped_;
    case to_host:
      return host_stopped_;
    case ways:
      break;
  }
  return false;
}

void LoopbackConnection::schedule(Way way, TimeNs time, std::function<void()> happen) {
  fabric_->at(time, [weak = weak_from_this(), way, happen = std::move(happen)]() mutable {
    const auto self = weak.lock();
    if (!self || self->severed_) return;
    if (self->blocked(way))
      self->standing_[way].push_back(std::move(happen));
    else
      happen();
  });
}

void LoopbackConnection::send(Way way, std::function<void()> happen) {
  last_[way] = std::max(last_[way], fabric_->now() + options_.control.draw(random_));
  schedule(way, last_[way], std::move(happen));
}

// Delayed steps happen now, in their order and before anything that comes later on the same way.
void LoopbackConnection::resume() {
  for (unsigned way = 0; way < ways; ++way) {
    auto standing = std::move(standing_[way]);
    standing_[way].clear();
    for (auto& happen : standing) {
      if (blocked(static_cast<Way>(way)))
        standing_[way].push_back(std::move(happen));
      else
        happen();
    }
  }
}

// ---- life

void LoopbackConnection::kill_host() { end_host({Error::peer_lost, "the host was killed"}); }
void LoopbackConnection::host_closes() { end_host({Error::closed, "the host closed the channel"}); }
void LoopbackConnection::kill_agent() { end_agent({Error::peer_lost, "the agent was killed"}); }
void LoopbackConnection::agent_closes() { end_agent({Error::peer_lost, "the agent closed the channel"}); }

void LoopbackConnection::end_host(Failure why) {
  if (!host_alive_) return;
  host_alive_ = false;
  send(to_agent, [this, why = std::move(why)] { tell_agent(why); });
}

void LoopbackConnection::end_agent(Failure why) {
  if (!agent_alive_) return;
  agent_alive_ = false;
  for (const auto& operation : pending_) operation->over = true;
  pending_.clear();
  ready_.clear();
  send(to_host, [this, why = std::move(why)] { tell_host(why); });
}

void LoopbackConnection::tell_agent(Failure why) {
  if (told_agent_ || !agent_alive_) return;
  for (const auto& operation : std::exchange(pending_, {})) {
    operation->failure = Failure{Error::peer_lost, fmt::format("under way when the link ended: {}", why.message)};
    complete(*operation);
  }
  deliver({Kind::closed, 0, tl::unexpected(std::move(why)), {}});
  told_agent_ = true;
}

void LoopbackConnection::signal_host() {
  signalled_ = true;
  ::eventfd_write(event_.get(), 1);
}

void LoopbackConnection::tell_host(Failure why) {
  if (told_host_) return;
  told_host_ = std::move(why);
  signal_host();
}

void LoopbackConnection::continue_host() {
  host_stopped_ = false;
  resume();
}

void LoopbackConnection::continue_agent() {
  agent_stopped_ = false;
  resume();
}

void LoopbackConnection::partition() {
  if (partitioned_) return;
  partitioned_ = true;
  fabric_->at(fabric_->now() + options_.silence_ns, [weak = weak_from_this(), number = ++partitions_] {
    const auto self = weak.lock();
    if (!self || !self->partitioned_ || self->partitions_ != number) return;
    const Failure why{Error::peer_lost, fmt::format("nothing was heard for {} ns", self->options_.silence_ns)};
    self->tell_agent(why);
    self->tell_host(why);
    self->severed_ = true;
  });
}

void LoopbackConnection::heal() {
  if (!partitioned_) return;
  partitioned_ = false;
  if (!severed_) resume();
}

// ---- the host's end

Status LoopbackConnection::host_usable() const {
  if (!host_alive_) return fail(Error::closed, "this end of the link is closed");
  if (told_host_) return tl::unexpected(*told_host_);
  return {};
}

Status LoopbackConnection::attach_segment(RegionId segment, SegmentMemory view) {
  if (views_.contains(segment))
    return fail(Error::protocol, "segment {}: announced twice", segment & ~wire::segment_flag);
  OFP_TRY(announced_.attach(segment, 0, reinterpret_cast<std::uint64_t>(view.data()), view.length(), 0));
  views_[segment] = std::move(view);
  return {};
}

Status LoopbackConnection::attach_channel(const SegmentMemory& memory) {
  OFP_ASSIGN(SegmentMemory view, map_sealed(memory.fd(), memory.length(), "the channel segment"));
  return attach_segment(wire::channel_segment, std::move(view));
}

Status LoopbackConnection::announce_segment(RegionId segment, const SegmentMemory& memory, TimeNs deadline) {
  OFP_TRY(host_usable());
  if (!wire::is_segment(segment)) return fail(Error::invalid, "region {} is not a segment's number", segment);
  if (memory.fd() < 0) return fail(Error::invalid, "segment {}: its memory was not allocated by this link", segment);
  OFP_ASSIGN(SegmentMemory mapping, map_sealed(memory.fd(), memory.length(), "a segment"));
  acknowledged_.erase(segment);
  send(to_agent, [this, segment, view = std::make_shared<SegmentMemory>(std::move(mapping))] {
    if (!agent_alive_ || told_agent_) return;
    auto attached = attach_segment(segment, std::move(*view));
    if (!attached) {  // the agent has closed its end
      send(to_host, [this, why = attached.error()] { tell_host(why); });
      return tell_agent(std::move(attached).error());
    }
    send(to_host, [this, segment] { acknowledged_.insert(segment); });
  });
  fabric_->run_until(deadline,
                     [this, segment] { return acknowledged_.contains(segment) || told_host_ || !host_alive_; });
  if (acknowledged_.erase(segment) > 0) return {};
  OFP_TRY(host_usable());
  retire_segment(segment);  // in case the agent takes it later
  return fail(Error::timeout, "the agent did not take segment {} in time", segment & ~wire::segment_flag);
}

void LoopbackConnection::retire_segment(RegionId segment) {
  if (!host_usable()) return;
  send(to_agent, [this, segment] {
    const auto found = views_.find(segment);
    if (!agent_alive_ || found == views_.end()) return;
    if (announced_.detach(segment, 0)) {
      withdrawn_.push_back(std::move(found->second));
      views_.erase(found);
    }
  });
}

Result<std::uint32_t> LoopbackConnection::announce_range(RegionId range, std::uint32_t generation, const void* base,
                                                         std::uint64_t length) {
  OFP_TRY(host_usable());
  if (wire::is_segment(range)) return fail(Error::invalid, "region {:#x} is a segment's number, not a range's", range);
  if (options_.staged) return fail(Error::unsupported, "ranges cannot be read over this link: {}", traits_.reason);
  if (options_.mapped) return 0u;  // like local_link, which reads the process's present memory
  const auto key = static_cast<std::uint32_t>(random_.next()) | 1u;
  OFP_TRY(registered_.attach(range, generation, reinterpret_cast<std::uint64_t>(base), length, key));
  return key;
}

void LoopbackConnection::end_range(RegionId range, std::uint32_t generation) {
  const Region* region = registered_.find(range);
  if (region != nullptr && region->generation == generation) (void)registered_.detach(range, generation);
}

void LoopbackConnection::retire_range(RegionId range, std::uint32_t generation) {
  withdraw_range(range, generation);
  if (!is_withdrawn(range, generation))
    (void)fabric_->run_until(fabric_->now() + second_ns, [&] { return is_withdrawn(range, generation); });
  leaving_.erase({range, generation});
  end_range(range, generation);
}

// The agent answers when it comes to it.
void LoopbackConnection::withdraw_range(RegionId range, std::uint32_t generation) {
  if (options_.withdrawal_ns == 0 || !host_usable()) return end_range(range, generation);
  leaving_.emplace(range, generation);
  send(to_agent, [this, range, generation] {
    schedule(to_host, fabric_->now() + options_.withdrawal_ns, [this, range, generation] {
      if (leaving_.erase({range, generation}) == 0) return;
      end_range(range, generation);
      arrived_ = true;
      signal_host();
    });
  });
}

bool LoopbackConnection::is_withdrawn(RegionId range, std::uint32_t generation) const {
  ++withdrawal_asks_;
  return !leaving_.contains({range, generation}) || !host_usable();
}

void LoopbackConnection::host_wakes(std::vector<std::byte> requests) {
  if (!host_usable()) return;
  send(to_agent, [this, requests = std::move(requests)]() mutable {
    const auto is_wake = [](const LinkEvent& event) { return event.kind == Kind::woken; };
    if (!agent_alive_ || told_agent_) return;
    const auto queued = std::find_if(ready_.begin(), ready_.end(), is_wake);
    if (queued == ready_.end()) return deliver({Kind::woken, 0, {}, {}, std::move(requests)});
    queued->requests = std::move(requests);  // as over a real link: one event for both, with those of the newer wake
  });
}

void LoopbackConnection::host_waits(TimeNs deadline) {
  const auto awake = [this] { return !host_alive_ || (!host_stopped_ && (woken_ || arrived_ || told_host_)); };
  if (!fabric_->run_until(deadline, awake) && host_alive_ && host_stopped_)
    fabric_->run_until(never, [this] { return !host_alive_ || !host_stopped_; });
}

Status LoopbackConnection::host_looks() {
  eventfd_t count;
  if (std::exchange(signalled_, false)) ::eventfd_read(event_.get(), &count);  // simulations look very often
  woken_ = arrived_ = false;
  return host_usable();
}

Result<Fd> LoopbackConnection::take_descriptor(std::uint64_t ticket, TimeNs deadline) {
  if (!options_.mapped) return fail(Error::unsupported, "descriptors cannot be handed over this link");
  fabric_->run_until(deadline, [this, ticket] { return descriptors_.contains(ticket) || told_host_ || !host_alive_; });
  if (auto node = descriptors_.extract(ticket)) return std::move(node.mapped());
  OFP_TRY(host_usable());
  return fail(Error::timeout, "no descriptor came for ticket {} in time", ticket);
}

Status LoopbackConnection::offer(std::uint64_t number, int fd) {
  OFP_TRY(host_usable());
  if (!options_.mapped) return fail(Error::unsupported, "descriptors cannot be offered over this link");
  OFP_ASSIGN(Fd copy, duplicate(fd));
  send(to_agent, [this, number, shared = std::make_shared<Fd>(std::move(copy))] {
    if (agent_alive_ && !told_agent_) deliver({Kind::offered, number, {}, std::move(*shared)});
  });
  return {};
}

// ---- the agent's end

Status LoopbackConnection::attach_range(RegionId range, std::uint32_t generation, std::uint64_t base,
                                        std::uint64_t length, std::uint32_t key) {
  if (wire::is_segment(range)) return fail(Error::invalid, "region {:#x} is a segment's number, not a range's", range);
  if (options_.staged) return fail(Error::unsupported, "ranges cannot be read over this link: {}", traits_.reason);
  return announced_.attach(range, generation, base, length, key);
}

Status LoopbackConnection::detach_range(RegionId range, std::uint32_t generation) {
  if (wire::is_segment(range)) return fail(Error::invalid, "region {:#x} is a segment's number, not a range's", range);
  return announced_.detach(range, generation);
}

MutableBytes LoopbackConnection::mapped(RegionId segment) {
  const auto found = views_.find(segment);
  return options_.mapped && agent_alive_ && found != views_.end() ? found->second.bytes() : MutableBytes{};
}

void LoopbackConnection::agent_wakes() {
  if (!agent_alive_ || told_agent_) return;
  send(to_host, [this] {
    woken_ = true;
    signal_host();
  });
}

Status LoopbackConnection::hand_over(std::uint64_t ticket, int fd) {
  if (!agent_alive_ || told_agent_) return fail(Error::closed, "this end of the link is closed");
  if (!options_.mapped) return fail(Error::unsupported, "descriptors cannot be handed over this link");
  OFP_ASSIGN(Fd copy, duplicate(fd));
  send(to_host, [this, ticket, shared = std::make_shared<Fd>(std::move(copy))] {
    if (!host_alive_) return;
    descriptors_.insert_or_assign(ticket, std::move(*shared));
    arrived_ = true;
    signal_host();
  });
  return {};
}

std::size_t LoopbackConnection::poll(std::span<LinkEvent> events) {
  withdrawn_.clear();
  std::size_t count = 0;
  for (; count < events.size() && !ready_.empty(); ++count) {
    events[count] = std::move(ready_.front());
    ready_.pop_front();
  }
  return count;
}

// Keeps `closed` the last.
void LoopbackConnection::deliver(LinkEvent event) {
  ready_.insert(told_agent_ && !ready_.empty() ? ready_.end() - 1 : ready_.end(), std::move(event));
  if (options_.on_ready) options_.on_ready();
}

// ---- reads and writes

LoopbackConnection::OperationPointer LoopbackConnection::post(Kind kind, std::uint64_t token) {
  auto operation = std::make_shared<Operation>(Operation{kind, token, std::nullopt});
  pending_.push_back(operation);
  return operation;
}

// Parts of [start, start + length) that begin at multiples of `border`, as offsets from start, in random order.
std::vector<LoopbackConnection::Part> LoopbackConnection::cut(std::uint64_t start, std::uint64_t length,
                                                              std::uint64_t border) {
  if (length == 0) return {};
  std::vector<std::uint64_t> at{0, length};
  const std::uint64_t first = align_up(start, border) - start;
  if (first < length) {
    const std::uint64_t borders = (length - 1 - first) / border + 1;
    for (std::uint64_t cuts = random_.below(std::min(cuts_max, borders) + 1); cuts > 0; --cuts)
      at.push_back(first + random_.below(borders) * border);
  }
  std::sort(at.begin(), at.end());
  at.erase(std::unique(at.begin(), at.end()), at.end());
  std::vector<Part> parts;
  for (std::size_t i = 0; i + 1 < at.size(); ++i) parts.push_back({at[i], at[i + 1] - at[i]});
  for (std::size_t i = parts.size(); i > 1; --i) std::swap(parts[i - 1], parts[random_.below(i)]);
  return parts;
}

void LoopbackConnection::read(std::uint64_t token, std::span<const ReadPiece> pieces) {
  if (!agent_alive_ || (told_agent_ && ready_.empty())) return;
  const auto operation = post(Kind::read_done, token);
  if (told_agent_) operation->failure = Failure{Error::peer_lost, "the link has ended"};
  for (const ReadPiece& piece : pieces) {
    if (operation->failure) break;
    if (auto region = announced_.resolve(piece.region, piece.generation, piece.offset, piece.length); !region)
      operation->failure = std::move(region).error();
  }
  if (operation->failure) return complete(*operation);

  const TimeNs now = fabric_->now();
  const TimeNs takes = options_.operation.draw(random_);
  for (const ReadPiece& piece : pieces) {
    if (options_.mapped && !blocked(operations)) {
      read_part(operation, piece, {0, piece.length});
      continue;
    }
    const std::uint64_t start = announced_.find(piece.region)->base + piece.offset;
    for (const Part part : cut(start, piece.length, cache_line_bytes))
      schedule(operations, now + random_.between(0, takes),
               [this, operation, piece, part] { read_part(operation, piece, part); });
  }
  complete_at(operation, now + takes);
}

void LoopbackConnection::write(std::uint64_t token, std::span<const WritePiece> pieces) {
  if (!agent_alive_ || (told_agent_ && ready_.empty())) return;
  const auto operation = post(Kind::write_done, token);
  if (told_agent_) operation->failure = Failure{Error::peer_lost, "the link has ended"};
  for (const WritePiece& piece : pieces) {
    if (operation->failure) break;
    if (!wire::is_segment(piece.segment))
      operation->failure =
          Failure{Error::denied, fmt::format("a write to range {}: only segments can be written", piece.segment)};
    else if (auto region = announced_.resolve(piece.segment, 0, piece.offset, piece.length); !region)
      operation->failure = std::move(region).error();
  }
  if (operation->failure) return complete(*operation);

  const TimeNs now = fabric_->now();
  const TimeNs takes = options_.operation.draw(random_);
  for (const WritePiece& piece : pieces) {
    const TimeNs from = std::max(now, write_clock_);
    // A mapped write changes memory during the call, unless one before it has not.
    if (options_.mapped && !blocked(operations) && write_clock_ < now) {
      write_part(operation, piece, {0, piece.length});
      continue;
    }
    write_clock_ = from + random_.between(0, takes / static_cast<TimeNs>(pieces.size()));
    for (const Part part : cut(piece.offset, piece.length, word_bytes))
      schedule(operations, random_.between(from, write_clock_),
               [this, operation, piece, part] { write_part(operation, piece, part); });
  }
  complete_at(operation, std::max(now + takes, write_clock_));
}

// A remote key only opens memory registered at that moment.
Status LoopbackConnection::check_registration(const ReadPiece& piece) const {
  const Region* named = announced_.find(piece.region);
  if (named == nullptr) return wire::not_announced(piece.region, piece.generation);
  const Region* registered = registered_.find(piece.region);
  if (registered == nullptr) return wire::not_announced(piece.region, piece.generation);
  if (registered->key != named->key || registered->base != named->base || registered->length < named->length)
    return fail(Error::stale,
                "range {}: named with key {:#x}, base {:#x} and {} bytes, the host registered key {:#x}, base {:#x} "
                "and {} bytes",
                piece.region, named->key, named->base, named->length, registered->key, registered->base,
                registered->length);
  return {};
}

void LoopbackConnection::read_part(const OperationPointer& operation, const ReadPiece& piece, Part part) {
  if (operation->over || operation->failure || !host_alive_) return;
  if (wire::is_segment(piece.region)) {
    const auto found = views_.find(piece.region);
    if (found == views_.end() || found->second.length() < piece.offset + piece.length)
      operation->failure = wire::not_announced(piece.region, piece.generation).value();
    else if (part.length > 0)
      std::memcpy(piece.to + part.offset, found->second.data() + piece.offset + part.offset, part.length);
    return;
  }
  if (!options_.mapped) {
    if (auto registered = check_registration(piece); !registered) {
      operation->failure = std::move(registered).error();
      return;
    }
  }
  const Region* region = announced_.find(piece.region);
  if (region == nullptr || region->generation != piece.generation) {
    operation->failure = wire::not_announced(piece.region, piece.generation).value();
    return;
  }
  const std::uint64_t address = region->base + piece.offset;
  if (!read_memory(reinterpret_cast<const std::byte*>(address + part.offset), piece.to + part.offset, part.length))
    operation->failure =
        Failure{Error::unreadable,
                fmt::format("range {} at generation {}: {} bytes at offset {} (address {:#x}) cannot be read",
                            piece.region, piece.generation, piece.length, piece.offset, address)};
}

// The address may be bad: announced memory may have been freed.
bool LoopbackConnection::read_memory(const std::byte* from, std::byte* to, std::uint64_t length) {
  if (!guarded_) {
    auto made = GuardedCopy::create();
    OFP_ASSERT(made);
    guarded_ = std::move(*made);
  }
  for (std::uint64_t at = 0; at < length;) {
    const auto copied = guarded_->copy(from + at, length - at);
    if (!copied) return false;
    std::memcpy(to + at, copied->data(), copied->size());
    at += copied->size();
  }
  return true;
}

void LoopbackConnection::write_part(const OperationPointer& operation, const WritePiece& piece, Part part) {
  if (operation->over || operation->failure || !host_alive_) return;
  const auto found = views_.find(piece.segment);
  if (found == views_.end() || found->second.length() < piece.offset + piece.length)
    operation->failure = wire::not_announced(piece.segment, 0).value();
  else if (part.length > 0)
    std::memcpy(found->second.data() + piece.offset + part.offset, piece.from + part.offset, part.length);
}

void LoopbackConnection::complete_at(const OperationPointer& operation, TimeNs time) {
  schedule(operations, time, [this, operation] {
    // With the host dead the operation fails when the agent learns it.
    if (!operation->over && host_alive_) complete(*operation);
  });
}

void LoopbackConnection::complete(Operation& operation) {
  operation.over = true;
  std::erase_if(pending_, [&](const OperationPointer& other) { return other.get() == &operation; });
  Status status;
  if (operation.failure) status = tl::unexpected(*operation.failure);
  deliver({operation.kind, operation.token, std::move(status), {}});
}

}  // namespace offpath::link
