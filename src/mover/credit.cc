#include "mover/credit.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/log.h"
#include "mover/operation.h"
#include "wire/messages/stream_messages.h"

namespace offpath::mover {

namespace {

constexpr std::uint64_t reach_share = 64;

constexpr std::uint64_t less(std::uint64_t from, std::uint64_t taken) noexcept { return from - std::min(from, taken); }

}  // namespace

Credit::Credit(const MoverOptions& options, BufferCache& cache, RequestQueues& queues, MoverCounters& counters,
               LatencyHistogram& waits)
    : options_(options), cache_(cache), queues_(queues), counters_(counters), waits_(waits) {}

// ---- streams

void Credit::open(Stream& stream, std::uint64_t largest, Effects& effects) {
  stream.account = &accounts_[stream.channel->client.user];
  ++stream.account->streams_open;
  stream.window = window_of(stream, largest);
  extend(stream, effects);
}

void Credit::widen(Stream& stream, std::uint64_t largest, Effects& effects) {
  stream.window = std::max(stream.window, window_of(stream, largest));
  if (!stream.hungry) extend(stream, effects);
}

// Room for two of the stream's largest batches, but at most an eighth of the free memory, so that later streams find
// room too. If idle streams have all of it, the window can still grow to a part of what they would return.
std::uint64_t Credit::window_of(const Stream& stream, std::uint64_t largest) const {
  return std::min(std::max(options_.window_bytes, 2 * (largest + stream.charge_base)),
                  std::max(memory_free_for(stream.channel->client.user) / 8,
                           reach_of(stream, set_aside_left() + kept_bytes_) / reach_share));
}

void Credit::close(Stream& stream, TimeNs now) {
  if (stream.hungry) leave_queue(stream, now);
  promise_less(stream, stream.promised);
  unlist(stream);
  if (--stream.account->streams_open == 0) accounts_.erase(stream.channel->client.user);
  stream.account = nullptr;
}

std::uint32_t Credit::streams_of(uid_t user) const {
  const auto own = accounts_.find(user);
  return own == accounts_.end() ? 0 : own->second.streams_open;
}

bool Credit::ask(Stream& stream, std::uint64_t total, TimeNs now, Effects& effects) {
  const bool gives_up = stream.hungry && total < stream.wanted;
  stream.wanted = total;
  serve_or_queue(stream, now, effects);
  return gives_up;
}

// ---- memory that is free, or that taking back all promises would free

std::uint64_t Credit::memory_without(std::uint64_t promised) const noexcept {
  if (!cache_.has_place()) return 0;  // mappings and descriptors may run out before bytes
  return less(options_.memory_bytes_max, promised + counters_.claimed_bytes + cache_.used_bytes());
}

std::uint64_t Credit::memory_unused() const noexcept { return memory_without(counters_.promised_bytes); }

std::uint64_t Credit::memory_free() const { return less(memory_unused(), set_aside_left()); }

std::uint64_t Credit::memory_free_for_programs() const { return less(memory_free(), kept_bytes_); }

std::uint64_t Credit::memory_reach_for_programs() const {
  return less(memory_without(0), set_aside_left() + kept_bytes_);
}

std::uint64_t Credit::memory_max_for_programs() const {
  return less(options_.memory_bytes_max, kept_bytes_ + (aside_ ? aside_().bytes : 0));
}

std::uint64_t Credit::memory_free_for(uid_t user) const {
  const auto own = accounts_.find(user);
  return left_of(user, own == accounts_.end() ? 0 : own->second.promised_bytes, memory_free_for_programs());
}

// The part of `all` that the user's share allows beside `promised` and the memory of the user's batches.
std::uint64_t Credit::left_of(uid_t user, std::uint64_t promised, std::uint64_t all) const {
  if (!cache_.has_place_for(user)) return 0;
  if (options_.user_bytes_max >= options_.memory_bytes_max) return all;
  const auto own = accounts_.find(user);
  const std::uint64_t claimed = own == accounts_.end() ? 0 : own->second.claimed_bytes;
  return std::min(all, less(options_.user_bytes_max, promised + claimed + cache_.used_bytes_of(user)));
}

// The bytes that a stream can get if all other streams' promises are taken back, of the user's share and of all memory.
std::uint64_t Credit::reach_of(const Stream& stream, std::uint64_t reserved) const {
  return left_of(stream.channel->client.user, stream.promised, less(memory_without(stream.promised), reserved));
}

bool Credit::keep_for_members(std::uint64_t bytes) noexcept { return bytes < std::exchange(kept_bytes_, bytes); }

std::uint64_t Credit::memory_lacking() const {
  if (hungry_.empty()) return 0;
  return lacking_of(*hungry_.front());
}

std::uint64_t Credit::lacking_of(const Stream& stream) const {
  return less(required_of(stream), reach_of(stream, set_aside_left() + kept_bytes_));
}

// ---- taking promises back

bool Credit::make_unused(std::uint64_t bytes) { return make_free(bytes, 0); }

bool Credit::make_free(std::uint64_t bytes) { return make_free(bytes, set_aside_left()); }

bool Credit::make_free_for_programs(std::uint64_t bytes) { return make_free(bytes, set_aside_left() + kept_bytes_); }

bool Credit::make_free(std::uint64_t bytes, std::uint64_t reserved) {
  if (bytes <= less(memory_unused(), reserved)) return true;
  if (bytes > less(memory_without(0), reserved)) return false;
  take_from_all(reserved + bytes, nullptr);
  return true;
}

// Takes promises back until `unused` bytes are, from the user with the largest ones first.
void Credit::take_from_all(std::uint64_t unused, const Account* except) {
  while (true) {
    const std::uint64_t lacking = less(unused, memory_unused());
    Account* largest = nullptr;
    for (auto& [user, account] : accounts_)
      if (&account != except && (largest == nullptr || account.promised_bytes > largest->promised_bytes))
        largest = &account;
    if (lacking == 0 || largest == nullptr || take_from(*largest, lacking, lacking, nullptr) == 0) return;
  }
}

// Streams that have asked or sent since the last round are passed over once, and give nothing beyond `bytes`.
std::uint64_t Credit::take_from(Account& account, std::uint64_t bytes, std::uint64_t wished, const Stream* except) {
  std::vector<Stream*>& all = account.promised_to;
  const std::size_t round = all.size();
  std::uint64_t taken = 0;
  for (std::size_t passed = 0; passed < (taken < bytes ? 2 * round : round) && taken < wished && !all.empty();) {
    if (account.next >= all.size()) account.next = 0;
    Stream& stream = *all[account.next];
    if (&stream == except || std::exchange(stream.is_recent, false)) {
      ++account.next;
      ++passed;
      continue;
    }
    const std::uint64_t part = std::min(stream.promised, wished - taken);
    promise_less(stream, part);
    taken += part;
    if (stream.promised == 0) unlist(stream);
  }
  return taken;
}

void Credit::unlist(Stream& stream) {
  if (stream.listed_at == Stream::unlisted) return;
  std::vector<Stream*>& all = stream.account->promised_to;
  all.back()->listed_at = stream.listed_at;
  all[stream.listed_at] = all.back();
  all.pop_back();
  stream.listed_at = Stream::unlisted;
}

void Credit::promise_more(Stream& stream, std::uint64_t bytes) {
  stream.promised += bytes;
  counters_.promised_bytes += bytes;
  stream.account->promised_bytes += bytes;
  if (stream.listed_at != Stream::unlisted || stream.promised == 0) return;
  stream.listed_at = stream.account->promised_to.size();
  stream.account->promised_to.push_back(&stream);
}

void Credit::promise_less(Stream& stream, std::uint64_t bytes) noexcept {
  stream.promised -= bytes;
  counters_.promised_bytes -= bytes;
  stream.account->promised_bytes -= bytes;
}

void Credit::claim(Operation& operation) noexcept {
  operation.is_claimed = true;
  counters_.claimed_bytes += operation.charge;
  operation.stream->account->claimed_bytes += operation.charge;
}

void Credit::end_claim(Operation& operation) noexcept {
  if (!std::exchange(operation.is_claimed, false)) return;
  counters_.claimed_bytes -= operation.charge;
  operation.stream->account->claimed_bytes -= operation.charge;
}

// ---- the reason of a stream's wait

bool Credit::is_served(const Stream& stream) noexcept {
  return stream.lacking.empty() && stream.wanted <= stream.granted;
}

std::uint64_t Credit::required_of(const Stream& stream) noexcept {
  if (!stream.lacking.empty()) return less(stream.lacking.front()->charge, stream.promised);
  return stream.wanted > stream.granted ? less(stream.wanted, stream.spent + stream.promised) : 0;
}

// Promises it the memory for one batch that waits, or for the credit that it has asked for; all or nothing.
bool Credit::serve(Stream& stream, Effects& effects) {
  const uid_t user = stream.channel->client.user;
  const std::uint64_t required = required_of(stream);
  if (required > memory_free_for(user)) {
    std::uint64_t reserved = set_aside_left() + kept_bytes_;
    if (required > reach_of(stream, reserved)) {
      // More than programs may ever have beside the members' share: it may use that share, otherwise it would wait
      // forever.
      reserved = set_aside_left();
      if (required <= less(memory_max_for_programs(), stream.promised) || required > reach_of(stream, reserved))
        return false;
    }
    Account& own = *stream.account;
    const std::uint64_t all_lacks = less(required, less(memory_unused(), reserved)),
                        own_lacks = less(required, left_of(user, own.promised_bytes, required)),
                        lacks = std::max(all_lacks, own_lacks);
    (void)take_from(own, lacks, lacks + stream.window / 4, &stream);
    take_from_all(reserved + required, &own);
  }
  promise_more(stream, required);
  stream.is_recent = true;
  if (stream.lacking.empty()) {
    set_credit(stream, effects);
    return true;
  }
  Operation& first = queues_.has_memory(stream);
  promise_less(stream, first.charge);
  claim(first);
  return true;
}

// The stream waits for memory of all that its user's share would allow it: others wait behind it.
bool Credit::waits_for_all(const Stream& stream) const {
  constexpr auto any = std::numeric_limits<std::uint64_t>::max();
  const std::uint64_t required = required_of(stream);
  return required > less(memory_without(stream.promised), set_aside_left() + kept_bytes_) &&
         required <= less(options_.memory_bytes_max, stream.promised) &&
         required <= left_of(stream.channel->client.user, stream.promised, any);
}

// Whether the stream has to wait behind the first one. A batch on credit does not, nor does a request after a while:
// their completion may free memory for the first, as the last part of a step does.
bool Credit::is_behind(const Stream& stream, TimeNs now) const {
  return is_queue_blocked_ && hungry_.front() != &stream && stream.lacking.empty() &&
         now < deadline_after(hungry_.front()->hungry_since, WaitsTold::silent_ns);
}

void Credit::serve_or_queue(Stream& stream, TimeNs now, Effects& effects) {
  while (!is_served(stream)) {
    if (!is_behind(stream, now) && serve(stream, effects)) continue;
    if (!stream.hungry) hungry_.push_back(&stream);
    stream.hungry = true;
    if (!is_queue_blocked_ && waits_for_all(stream)) {
      is_queue_blocked_ = true;
      pass_at_ = deadline_after(now, WaitsTold::silent_ns);
    }
    if (stream.hungry_since != never) return;
    stream.hungry_since = now;
    waits_told_.look_at = std::min(waits_told_.look_at, std::max(now + WaitsTold::silent_ns, waits_told_.next_at));
    return;
  }
  if (stream.hungry) leave_queue(stream, now);
  extend(stream, effects);
}

void Credit::leave_queue(Stream& stream, TimeNs now) {
  if (is_served(stream)) waits_.add(now - stream.hungry_since);
  std::erase(hungry_, &stream);
  if (hungry_.empty()) is_queue_blocked_ = false;
  stream.hungry = stream.is_wait_told = false;
  stream.hungry_since = never;
}

// In the order of the queue, one batch of a stream at a time. A stream that lacks memory of all holds up those behind
// it that ask for credit, for a while; a stream whose own user has taken too much delays no others.
std::vector<ChannelNumber> Credit::serve_queue(TimeNs now, Effects& effects) {
  std::vector<ChannelNumber> ready;
  is_queue_blocked_ = false;
  pass_at_ = never;
  bool waits_in_turn = false;
  for (std::size_t at = 0; at < hungry_.size();) {
    Stream& stream = *hungry_[at];
    if (waits_in_turn && !queues_.lack_memory()) break;
    const bool has_turn = !waits_in_turn || !stream.lacking.empty();
    if (!is_served(stream) && !(has_turn && serve(stream, effects))) {
      if (!is_queue_blocked_ && waits_for_all(stream)) {
        is_queue_blocked_ = true;
        const TimeNs until = deadline_after(stream.hungry_since, WaitsTold::silent_ns);
        waits_in_turn = now < until;
        if (waits_in_turn) pass_at_ = until;
      }
      ++at;
      continue;
    }
    waits_.add(now - stream.hungry_since);
    ready.push_back(stream.channel->number);
    hungry_.erase(hungry_.begin() + static_cast<std::ptrdiff_t>(at));
    stream.is_wait_told = false;
    stream.hungry = !is_served(stream);
    stream.hungry_since = !stream.hungry ? never : stream.lacking.empty() ? now : stream.lacking.front()->began;
    if (stream.hungry)
      hungry_.push_back(&stream);
    else
      extend(stream, effects);
  }
  return ready;
}

// ---- credit

// Topped up in quarters, so that not every batch moves the word.
void Credit::extend(Stream& stream, Effects& effects) {
  const std::uint64_t target = std::max(stream.wanted, stream.spent - stream.waiting + stream.window);
  const std::uint64_t missing = less(target, stream.spent + stream.promised);
  if (missing == 0 || missing < stream.window / 4 || is_queue_blocked_) return;
  promise_more(stream, std::min(missing, memory_free_for(stream.channel->client.user) / 2));
  set_credit(stream, effects);
}

void Credit::set_credit(Stream& stream, Effects& effects) {
  const std::uint64_t granted = stream.spent + stream.promised;
  if (granted <= stream.granted) return;
  stream.granted = granted;
  effects.push_back(
      service::LineEffect{service::LineEffect::Word::credit, stream.channel->number, stream.id, stream.granted});
}

Result<bool> Credit::spend(Operation& operation) {
  Stream& stream = *operation.stream;
  if (operation.charge > stream.granted - stream.spent)
    return fail(Error::protocol, "the batch was charged {} bytes, the stream's credit is {}", operation.charge,
                stream.granted - stream.spent);
  stream.spent += operation.charge;
  stream.is_recent = true;
  if (operation.charge > stream.promised || !stream.lacking.empty()) [[unlikely]]
    return false;
  promise_less(stream, operation.charge);
  return true;
}

void Credit::tell_of_waits(TimeNs now) {
  if (now < waits_told_.look_at) return;
  waits_told_.look_at = never;
  Stream* longest = nullptr;
  std::size_t told = 0;
  for (Stream* stream : hungry_) {
    if (stream->is_wait_told || stream->hungry_since == never) continue;
    if (const TimeNs at = std::max(stream->hungry_since + WaitsTold::silent_ns, waits_told_.next_at); now < at) {
      waits_told_.look_at = std::min(waits_told_.look_at, at);
      continue;
    }
    stream->is_wait_told = true;
    if (longest == nullptr || stream->hungry_since < longest->hungry_since) longest = stream;
    ++told;
  }
  if (longest == nullptr) return;
  const Client& client = longest->channel->client;
  log(LogLevel::warning,
      "stream \"{}\" of {} (process {}) has waited {} s for credit: {} bytes of memory, {} are free of {}. Drop "
      "objects of pool \"{}\", open the stream with keep, or give the agent more memory (memory.bytes_max){}",
      longest->name, client.program, client.pid, (now - longest->hungry_since) / second_ns, required_of(*longest),
      reach_of(*longest, set_aside_left() + kept_bytes_), memory_max_for_programs(), longest->pool,
      told > 1 ? fmt::format("; {} streams wait in all", told) : "");
  waits_told_.next_at = now + WaitsTold::between_ns;
  if (waits_told_.look_at != never) waits_told_.look_at = std::max(waits_told_.look_at, waits_told_.next_at);
}

}  // namespace offpath::mover
