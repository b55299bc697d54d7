#include "sift/tracks/track_writes.h"

#include <algorithm>

namespace offpath::sift {

void TrackWrites::ask(std::uint64_t number, const Write& write, std::size_t member, What what, TimeNs now,
                      service::Effects& effects) {
  const std::uint64_t asked = next_();
  asks_.emplace(asked, Asked{number, member, what});
  const bool publishes = what == What::publish || what == What::replace;
  const TimeNs wait_ns = publishes ? publish_ns : tell_ns;
  send_({asked, write.members[member].name, what, number, wait_ns, deadline_after(now, wait_ns + ask_wait_ns_)},
        write.wanted, now, effects);
}

Result<std::uint64_t> TrackWrites::begin(service::ChannelNumber channel, Wanted wanted,
                                         std::vector<std::string> members, TimeNs now, service::Effects& effects) {
  std::size_t own = 0;
  for (const auto& [number, other] : writes_) {
    own += other.channel == channel ? 1 : 0;
    if (other.state != State::over && other.wanted.name == wanted.name)
      return fail(Error::exists, "pool \"{}\": its tracks are being written to {} already", wanted.name,
                  other.wanted.directory);
  }
  if (own >= channel_writes_max)
    return fail(Error::too_large, "{} writes of tracks of this program are under way or unread, which is the limit",
                own);
  const std::uint64_t number = next_();
  Write& write = writes_.emplace(number, Write{channel, std::move(wanted), {}}).first->second;
  for (std::string& name : members) write.members.push_back({std::move(name)});
  write.open = write.members.size();
  for (std::size_t i = 0; i < write.members.size(); ++i) ask(number, write, i, What::begin, now, effects);
  return number;
}

void TrackWrites::on_answer(std::uint64_t number, const Result<wire::Written>& answer, TimeNs now,
                            service::Effects& effects) {
  const auto node = asks_.extract(number);
  if (!node) return;
  const Asked asked = node.mapped();
  const auto at = writes_.find(asked.write);
  if (at == writes_.end() || at->second.state == State::over) return;
  Write& write = at->second;
  if (!answer) return end(asked.write, write, tl::unexpected(answer.error()), now, effects);
  write.members[asked.member].written = *answer;
  if (!answer->over) return ask(asked.write, write, asked.member, What::more, now, effects);
  if (--write.open > 0) return;
  if (write.state == State::clearing && write.members.size() > 1) {
    write.state = State::publishing;
    write.open = write.members.size() - 1;
    for (std::size_t i = 1; i < write.members.size(); ++i) ask(asked.write, write, i, What::publish, now, effects);
  } else if (write.state == State::writing) {
    publish(asked.write, write, now, effects);
  } else {
    end(asked.write, write, {}, now, effects);
  }
}

void TrackWrites::publish(std::uint64_t number, Write& write, TimeNs now, service::Effects& effects) {
  if (progress(write).rows == 0)
    return end(number, write, fail(Error::not_found, "pool \"{}\" has no tracks", write.wanted.name), now, effects);
  write.state = State::clearing;
  write.open = 1;
  ask(number, write, 0, write.wanted.replace ? What::replace : What::publish, now, effects);
}

void TrackWrites::end(std::uint64_t number, Write& write, Status status, TimeNs now, service::Effects& effects) {
  write.state = State::over;
  write.status = std::move(status);
  if (!write.status)
    for (std::size_t i = 0; i < write.members.size(); ++i) ask(number, write, i, What::abandon, now, effects);
  if (tell(write, effects)) writes_.erase(number);
}

wire::Written TrackWrites::progress(const Write& write) {
  wire::Written sum{.over = write.state == State::over,
                    .members = static_cast<std::uint32_t>(write.members.size()),
                    .members_over = 0,
                    .files = 0,
                    .rows = 0,
                    .bytes = 0};
  for (const Member& member : write.members) {
    sum.members_over += member.written.members_over;
    sum.files += member.written.files;
    sum.rows += member.written.rows;
    sum.bytes += member.written.bytes;
  }
  return sum;
}

bool TrackWrites::tell(Write& write, service::Effects& effects) {
  if (!write.waiting) return false;
  const std::uint64_t ticket = write.waiting->ticket;
  write.waiting.reset();
  if (write.status)
    effects.push_back(service::ReplyEffect{write.channel, ticket, progress(write)});
  else
    effects.push_back(service::FailEffect{write.channel, ticket, wire::any_reply, write.status.error()});
  return write.state == State::over;
}

Status TrackWrites::serve(service::ChannelNumber channel, std::uint64_t ticket, const wire::SiftWritten& asked,
                          TimeNs now, service::Effects& effects) {
  const auto at = writes_.find(asked.number);
  if (at == writes_.end() || at->second.channel != channel)
    return fail(Error::not_found, "this program has no write of tracks of number {}", asked.number);
  Write& write = at->second;
  (void)tell(write, effects);  // an earlier question; of a write that is not over
  write.waiting = {ticket, deadline_after(now, std::max<TimeNs>(asked.wait_ns, 0))};
  if (write.state == State::over) {
    (void)tell(write, effects);
    writes_.erase(at);
  } else if (asked.cancel) {
    end(asked.number, write, fail(Error::cancelled, "the write to {} was cancelled", write.wanted.directory), now,
        effects);
  } else if (asked.wait_ns <= 0) {
    (void)tell(write, effects);
  }
  return {};
}

void TrackWrites::on_closed(service::ChannelNumber channel, TimeNs now, service::Effects& effects) {
  for (auto at = writes_.begin(); at != writes_.end();) {
    Write& write = at->second;
    if (write.channel != channel) {
      ++at;
      continue;
    }
    write.waiting.reset();
    if (write.state != State::over) end(at->first, write, fail(Error::cancelled, "its program is gone"), now, effects);
    at = writes_.erase(at);
  }
}

void TrackWrites::on_time(TimeNs now, service::Effects& effects) {
  for (auto at = writes_.begin(); at != writes_.end();) {
    const std::uint64_t number = at->first;
    Write& write = at->second;
    ++at;  // the write may be erased
    if (write.state != State::over && write.wanted.deadline <= now) {
      const wire::Written so_far = progress(write);
      end(number, write,
          fail(Error::timeout, "pool \"{}\": {} of {} members had written their tracks to {} in time, {} rows in all",
               write.wanted.name, so_far.members_over, so_far.members, write.wanted.directory, so_far.rows),
          now, effects);
    } else if (write.waiting && write.waiting->until <= now) {
      (void)tell(write, effects);
    }
  }
}

TimeNs TrackWrites::next_deadline() const noexcept {
  TimeNs next = never;
  for (const auto& [number, write] : writes_) {
    if (write.state == State::over) continue;
    next = std::min(next, write.wanted.deadline);
    if (write.waiting) next = std::min(next, write.waiting->until);
  }
  return next;
}

}  // namespace offpath::sift
