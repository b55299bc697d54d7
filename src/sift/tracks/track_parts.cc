#include "sift/tracks/track_parts.h"

#include <algorithm>

namespace offpath::sift {

void TrackParts::start(const Key& key, Part& part, std::function<Status()> run, service::Effects& effects) {
  const std::uint64_t job = next_();
  jobs_.emplace(job, key);
  part.busy = true;
  effects.push_back(service::JobEffect{service::token_of(service::ServiceId::sift, job), std::move(run)});
}

void TrackParts::begin(const Asker& from, uid_t user, TrackSnapshot tracks, TrackFiles::Target target,
                       const FrameMemory& memory, TimeNs until, TimeNs now, service::Effects& effects) {
  const Key key{from.channel, from.write};
  const auto own = std::ranges::count_if(parts_, [&](const auto& each) { return each.second.user == user; });
  Status may;
  if (parts_.contains(key))
    may = fail(Error::exists, "member {}: a write of number {} is under way", self_, from.write);
  else if (static_cast<std::size_t>(own) >= user_parts_max)
    may = fail(Error::too_large, "member {}: {} writes of tracks of user {} are under way, which is the limit", self_,
               own, user);
  if (!may) return answer_(from, tl::unexpected(std::move(may).error()), now, effects);
  const auto files = std::make_shared<TrackFiles>(std::move(tracks), std::move(target), memory);
  Part& part = parts_.emplace(key, Part{.user = user, .files = files, .heard = now}).first->second;
  part.waiting.emplace(from, until);
  start(key, part, [files] { return files->write_more(); }, effects);
}

TrackParts::Part* TrackParts::find(const Asker& from, TimeNs now, service::Effects& effects) {
  const auto at = parts_.find({from.channel, from.write});
  if (at != parts_.end() && !at->second.abandoned) {
    at->second.heard = now;
    return &at->second;
  }
  answer_(from, fail(Error::not_found, "member {}: there is no write of number {}", self_, from.write), now, effects);
  return nullptr;
}

void TrackParts::more(const Asker& from, TimeNs until, TimeNs now, service::Effects& effects) {
  Part* const part = find(from, now, effects);
  if (part == nullptr) return;
  part->waiting.emplace(from, until);
  const bool over = part->state != State::writing || !part->status;
  if (over) tell(*part, now, effects);
  if (!part->status) parts_.erase({from.channel, from.write});
}

void TrackParts::publish(const Asker& from, bool clear, TimeNs now, service::Effects& effects) {
  Part* const part = find(from, now, effects);
  if (part == nullptr) return;
  if (part->state != State::written)
    return answer_(from, fail(Error::invalid, "member {}: its part is not written", self_), now, effects);
  part->state = State::publishing;
  part->waiting.emplace(from, never);
  start({from.channel, from.write}, *part, [files = part->files, clear] { return files->publish(clear); }, effects);
}

void TrackParts::abandon(const Asker& from, service::Effects& effects) {
  if (const auto at = parts_.find({from.channel, from.write}); at != parts_.end()) {
    if (at->second.state == State::published) remove_files(at->second.files, effects);
    end(at, effects);
  }
}

void TrackParts::remove_files(std::shared_ptr<TrackFiles> files, service::Effects& effects) {
  effects.push_back(service::JobEffect{service::token_of(service::ServiceId::sift, next_()), [files]() -> Status {
                                         files->abandon();
                                         return {};
                                       }});
}

TrackParts::Parts::iterator TrackParts::end(Parts::iterator at, service::Effects& effects) {
  Part& part = at->second;
  part.waiting.reset();
  part.abandoned = true;
  part.files->cancel();
  if (part.busy) return std::next(at);
  if (part.state == State::written) remove_files(part.files, effects);
  return parts_.erase(at);
}

void TrackParts::tell(Part& part, TimeNs now, service::Effects& effects) {
  if (!part.waiting) return;
  const Asker to = part.waiting->first;
  part.waiting.reset();
  if (part.status)
    answer_(to,
            wire::Written{.over = part.state == State::written || part.state == State::published,
                          .members = 1,
                          .members_over = part.state == State::writing ? 0u : 1u,
                          .files = part.written.files,
                          .rows = part.written.rows,
                          .bytes = part.written.bytes},
            now, effects);
  else
    answer_(to, tl::unexpected(part.status.error()), now, effects);
}

void TrackParts::on_job(std::uint64_t job, Status status, TimeNs now, service::Effects& effects) {
  const auto node = jobs_.extract(job);
  const Key key = node.mapped();
  const auto at = parts_.find(key);
  Part& part = at->second;
  part.busy = false;
  if (part.abandoned) {
    // A failed job has removed the files; one that was given up does so when its thread returns.
    if (status) remove_files(part.files, effects);
    parts_.erase(at);
    return;
  }
  if (!status) {
    part.files->cancel();
    part.status = fail(status.error().code, "member {}: {}", self_, status.error().message);
    if (!part.waiting) return;  // the next request is told
    tell(part, now, effects);
    parts_.erase(key);
    return;
  }
  if (part.state == State::publishing) {
    part.state = State::published;
    counters_.files += part.written.files;
    counters_.rows += part.written.rows;
    counters_.bytes += part.written.bytes;
    return tell(part, now, effects);
  }
  part.written = part.files->written();
  if (part.written.all) {
    part.state = State::written;
    return tell(part, now, effects);
  }
  start(key, part, [files = part.files] { return files->write_more(); }, effects);
}

void TrackParts::on_closed(service::ChannelNumber channel, service::Effects& effects) {
  for (auto at = parts_.begin(); at != parts_.end();)
    at = at->first.first == channel ? end(at, effects) : std::next(at);
}

void TrackParts::on_time(TimeNs now, service::Effects& effects) {
  for (auto at = parts_.begin(); at != parts_.end();) {
    Part& part = at->second;
    if (part.waiting && part.waiting->second <= now) tell(part, now, effects);
    const bool gone = !part.waiting && !part.abandoned && deadline_after(part.heard, asker_gone_ns) <= now;
    at = gone ? end(at, effects) : std::next(at);
  }
}

TimeNs TrackParts::next_deadline() const noexcept {
  TimeNs next = never;
  for (const auto& [key, part] : parts_)
    if (!part.abandoned)
      next = std::min(next, part.waiting ? part.waiting->second : deadline_after(part.heard, asker_gone_ns));
  return next;
}

}  // namespace offpath::sift
