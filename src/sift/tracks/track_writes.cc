#include "sift/tracks/track_writes.h"

#include <algorithm>

namespace offpath::sift {

void TrackWrites::ask(std::uint64_t number, Write& write, std::size_t member, What what, TimeNs now,
                      service::Effects& effects) {
  Member& asked = write.members[member];
  const std::uint64_t question = next_();
  // Answers of members that are told to abandon their part are not awaited.
  asked.asked = what != What::abandon;
  if (asked.asked) asks_.emplace(question, Asked{number, member});
  const TimeNs wait_ns = write.state == State::writing && !asked.over ? tell_ns : publish_ns;
  send_({question, asked.name, what, number, wait_ns, deadline_after(now, wait_ns + ask_wait_ns_)}, write.wanted, now,
        effects);
}

void TrackWrites::ask_all(std::uint64_t number, Write& write, State state, What what, TimeNs now,
                          service::Effects& effects) {
  write.state = state;
  for (Member& member : write.members) member.over = false;
  for (std::size_t i = 0; i < write.members.size(); ++i) ask(number, write, i, what, now, effects);
}

Result<std::uint64_t> TrackWrites::begin(service::ChannelNumber channel, Wanted wanted,
                                         std::vector<std::string> members, TimeNs now, service::Effects& effects) {
  std::size_t own = 0;
  auto known = writes_.end();  // the oldest end that the program has received
  for (auto at = writes_.begin(); at != writes_.end(); ++at) {
    const Write& other = at->second;
    own += other.channel == channel ? 1 : 0;
    if (known == writes_.end() && other.channel == channel && other.told) known = at;
    if (other.state != State::over && other.wanted.name == wanted.name)
      return fail(Error::exists, "pool \"{}\": its tracks are being written to {} already", wanted.name,
                  other.wanted.directory);
  }
  if (own >= channel_writes_max && known == writes_.end())
    return fail(Error::too_large, "{} writes of tracks of this program are under way or unread, which is the limit",
                own);
  if (own >= channel_writes_max) writes_.erase(known);
  const std::uint64_t number = next_();
  Write& write = writes_.emplace(number, Write{channel, std::move(wanted), {}}).first->second;
  for (std::string& name : members) write.members.push_back({std::move(name)});
  ask_all(number, write, State::writing, What::begin, now, effects);
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
  Member& member = write.members[asked.member];
  member.asked = false;
  // All files have their names when members finish: the write has succeeded, even if one answers with an error.
  const bool finishes = write.state == State::finishing;
  if (!answer && !finishes) return end(asked.write, write, tl::unexpected(answer.error()), now, effects);
  if (answer && !finishes) member.written = *answer;
  if (!finishes && !answer->over) return ask(asked.write, write, asked.member, What::more, now, effects);
  member.over = true;
  member.again = deadline_after(now, keep_ns);
  if (std::ranges::all_of(write.members, [](const Member& each) { return each.over && !each.asked; }))
    next_state(asked.write, write, now, effects);
}

void TrackWrites::next_state(std::uint64_t number, Write& write, TimeNs now, service::Effects& effects) {
  switch (write.state) {
    case State::writing:
      if (progress(write).rows == 0)
        return end(number, write, fail(Error::not_found, "pool \"{}\" has no tracks", write.wanted.name), now, effects);
      return ask_all(number, write, State::confirming, What::more, now, effects);
    case State::confirming:
      return ask_all(number, write, State::publishing, What::publish, now, effects);
    case State::publishing:
      return ask_all(number, write, State::finishing, What::finish, now, effects);
    case State::finishing:
    case State::over:
      return end(number, write, {}, now, effects);
  }
}

void TrackWrites::end(std::uint64_t number, Write& write, Status status, TimeNs now, service::Effects& effects) {
  if (write.state == State::finishing) status = {};  // all files have their names: it has succeeded
  write.state = State::over;
  // To its program would_block means that this agent is slow.
  if (!status && status.error().code == Error::would_block) status = fail(Error::timeout, "{}", status.error().message);
  write.status = std::move(status);
  if (!write.status) ask_all(number, write, State::over, What::abandon, now, effects);
  tell(write, effects);
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

void TrackWrites::tell(Write& write, service::Effects& effects) {
  if (!write.waiting) return;
  const std::uint64_t ticket = write.waiting->ticket;
  write.waiting.reset();
  write.told = write.state == State::over;
  if (write.status)
    effects.push_back(service::ReplyEffect{write.channel, ticket, progress(write)});
  else
    effects.push_back(service::FailEffect{write.channel, ticket, wire::any_reply, write.status.error()});
}

Status TrackWrites::serve(service::ChannelNumber channel, std::uint64_t ticket, const wire::SiftWritten& asked,
                          TimeNs now, service::Effects& effects) {
  const auto at = writes_.find(asked.number);
  if (at == writes_.end() || at->second.channel != channel)
    return fail(Error::not_found, "this program has no write of tracks of number {}", asked.number);
  Write& write = at->second;
  tell(write, effects);  // an earlier question
  write.waiting = {ticket, deadline_after(now, std::max<TimeNs>(asked.wait_ns, 0))};
  if (asked.cancel && write.state != State::over)
    end(asked.number, write, fail(Error::cancelled, "the write to {} was cancelled", write.wanted.directory), now,
        effects);
  if (write.state == State::over || asked.wait_ns <= 0) tell(write, effects);
  if (asked.cancel) writes_.erase(at);
  return {};
}

void TrackWrites::on_members(std::span<const std::string> alive, std::span<const std::string> anew, TimeNs now,
                             service::Effects& effects) {
  const auto is_among = [](std::span<const std::string> names, const Member& member) {
    return std::ranges::find(names, member.name) != names.end();
  };
  for (auto& [number, write] : writes_) {
    if (write.state == State::finishing || write.state == State::over) continue;
    const auto lost = std::ranges::find_if(
        write.members, [&](const Member& member) { return is_among(anew, member) || !is_among(alive, member); });
    if (lost != write.members.end())
      end(number, write,
          fail(Error::peer_lost, "member {} {} while tracks of pool \"{}\" were written to {}", lost->name,
               is_among(anew, *lost) ? "was restarted" : "died", write.wanted.name, write.wanted.directory),
          now, effects);
  }
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
  for (auto& [number, write] : writes_) {
    if (write.state == State::over) continue;
    if (write.wanted.deadline <= now) {
      const wire::Written so_far = progress(write);
      end(number, write,
          fail(Error::timeout, "pool \"{}\": {} of {} members had written their tracks to {} in time, {} rows in all",
               write.wanted.name, so_far.members_over, so_far.members, write.wanted.directory, so_far.rows),
          now, effects);
      continue;
    }
    if (write.waiting && write.waiting->until <= now) tell(write, effects);
    if (write.state == State::finishing) continue;
    for (std::size_t i = 0; i < write.members.size(); ++i)
      if (const Member& member = write.members[i]; member.over && !member.asked && member.again <= now)
        ask(number, write, i, What::more, now, effects);
  }
}

TimeNs TrackWrites::next_deadline() const noexcept {
  TimeNs next = never;
  for (const auto& [number, write] : writes_) {
    if (write.state == State::over) continue;
    next = std::min(next, write.wanted.deadline);
    if (write.waiting) next = std::min(next, write.waiting->until);
    if (write.state == State::finishing) continue;
    for (const Member& member : write.members)
      if (member.over && !member.asked) next = std::min(next, member.again);
  }
  return next;
}

}  // namespace offpath::sift
