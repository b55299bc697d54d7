#include "sift/tracks/track_parts.h"

#include <algorithm>

namespace offpath::sift {

std::uint64_t TrackParts::start(const Key& key, const Part& part, std::function<Status()> run,
                                service::Effects& effects) {
  const std::uint64_t job = next_();
  jobs_.emplace(job, Job{key, part.user});
  effects.push_back(service::JobEffect{service::file_token_of(service::ServiceId::sift, job), std::move(run)});
  return job;
}

std::size_t TrackParts::under_way(uid_t user) {
  std::erase_if(given_up_, [](const auto& each) { return each.second.expired(); });
  const auto stuck = std::ranges::count(given_up_, user, &std::pair<uid_t, std::weak_ptr<TrackFiles>>::first);
  const auto parts = std::ranges::count_if(parts_, [&](const auto& each) {
    const State state = each.second.state;
    return each.second.user == user && state != State::published && state != State::finishing;
  });
  const auto jobs = std::ranges::count_if(jobs_, [&](const auto& each) {
    const auto part = parts_.find(each.second.part);
    return each.second.user == user && (part == parts_.end() || part->second.job != each.first);
  });
  return static_cast<std::size_t>(parts + jobs + stuck);
}

void TrackParts::begin(const Asker& from, uid_t user, TrackSnapshot tracks, TrackFiles::Target target,
                       const FrameMemory& memory, TimeNs until, TimeNs now, service::Effects& effects) {
  const Key key{from.channel, from.write};
  const std::size_t own = under_way(user);
  Status may;
  if (parts_.contains(key))
    may = fail(Error::exists, "member {}: a write of number {} is under way", self_, from.write);
  else if (own >= user_parts_max)
    may = fail(Error::too_large, "member {}: {} writes of tracks of user {} are under way, which is the limit", self_,
               own, user);
  if (!may) return answer_(from, tl::unexpected(std::move(may).error()), now, effects);
  const auto files = std::make_shared<TrackFiles>(std::move(tracks), std::move(target), memory);
  Part& part = parts_.emplace(key, Part{.user = user, .files = files, .heard = now}).first->second;
  part.waiting.emplace(from, until);
  part.job = start(key, part, [files] { return files->write_more(); }, effects);
}

TrackParts::Part* TrackParts::find(const Asker& from, TimeNs now, service::Effects& effects) {
  const auto at = parts_.find({from.channel, from.write});
  if (at != parts_.end()) {
    at->second.heard = now;
    return &at->second;
  }
  answer_(from, fail(Error::not_found, "member {}: there is no write of number {}", self_, from.write), now, effects);
  return nullptr;
}

void TrackParts::more(const Asker& from, TimeNs until, TimeNs now, service::Effects& effects) {
  Part* const part = find(from, now, effects);
  if (part == nullptr) return;
  const Key key{from.channel, from.write};
  part->waiting.emplace(from, until);
  if (!part->status) {
    tell(*part, now, effects);
    parts_.erase(key);
  } else if (part->job == 0) {
    part->job = start(key, *part, [files = part->files] { return files->confirm(); }, effects);
  }
}

void TrackParts::publish(const Asker& from, TimeNs now, service::Effects& effects) {
  Part* const part = find(from, now, effects);
  if (part == nullptr) return;
  if (part->state != State::written || part->job != 0)
    return answer_(from, fail(Error::invalid, "member {}: its part is not written", self_), now, effects);
  part->state = State::publishing;
  part->waiting.emplace(from, never);
  part->job = start({from.channel, from.write}, *part, [files = part->files] { return files->publish(); }, effects);
}

void TrackParts::finish(const Asker& from, TimeNs now, service::Effects& effects) {
  Part* const part = find(from, now, effects);
  if (part == nullptr) return;
  if (part->state != State::published || part->job != 0)
    return answer_(from, fail(Error::invalid, "member {}: its part is not published", self_), now, effects);
  part->state = State::finishing;
  part->waiting.emplace(from, never);
  part->job = start({from.channel, from.write}, *part, [files = part->files] { return files->finish(); }, effects);
}

void TrackParts::abandon(const Asker& from, TimeNs now, service::Effects& effects) {
  if (const auto at = parts_.find({from.channel, from.write}); at != parts_.end()) end(at, now, effects);
}

// Removed by the running job, or by one of its own.
bool TrackParts::remove_files(const Key& key, const Part& part, service::Effects& effects) {
  if (part.files->cancel()) return false;
  const auto remove = [files = part.files]() -> Status {
    files->abandon();
    return {};
  };
  (void)start(key, part, remove, effects);
  return true;
}

TrackParts::Parts::iterator TrackParts::end(Parts::iterator at, TimeNs now, service::Effects& effects) {
  Part& part = at->second;
  if (part.waiting)
    answer_(part.waiting->first, fail(Error::cancelled, "member {}: the write was cancelled", self_), now, effects);
  if (part.status) remove_files(at->first, part, effects);
  return parts_.erase(at);
}

// Published files stay: other members' files may have been seen.
TrackParts::Parts::iterator TrackParts::asker_gone(Parts::iterator at, TimeNs now, service::Effects& effects) {
  Part& part = at->second;
  part.waiting.reset();
  if (part.state != State::published && part.state != State::finishing) return end(at, now, effects);
  if (part.job == 0) (void)start(at->first, part, [files = part.files] { return files->finish(); }, effects);
  return parts_.erase(at);
}

void TrackParts::tell(Part& part, TimeNs now, service::Effects& effects) {
  if (!part.waiting) return;
  const Asker to = part.waiting->first;
  part.waiting.reset();
  if (part.status)
    answer_(to,
            wire::Written{.over = part.job == 0 && part.state != State::writing,
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
  const Key key = node.mapped().part;
  const auto at = parts_.find(key);
  if (at == parts_.end() || at->second.job != job) return;
  Part& part = at->second;
  part.job = 0;
  if (part.state == State::finishing) {
    tell(part, now, effects);
    parts_.erase(at);
    return;
  }
  if (!status) {
    if (!remove_files(key, part, effects)) given_up_.emplace_back(part.user, part.files);
    part.status = fail(status.error().code, "member {}: {}", self_, status.error().message);
    if (!part.waiting) return;  // the next request is told
    tell(part, now, effects);
    parts_.erase(at);
    return;
  }
  if (part.state == State::publishing) {
    part.state = State::published;
    counters_.files += part.written.files;
    counters_.rows += part.written.rows;
    counters_.bytes += part.written.bytes;
  } else if (part.state == State::writing) {
    part.written = part.files->written();
    if (part.written.all)
      part.state = State::written;
    else
      part.job = start(key, part, [files = part.files] { return files->write_more(); }, effects);
  }
  if (part.job == 0) tell(part, now, effects);
}

void TrackParts::on_closed(service::ChannelNumber channel, TimeNs now, service::Effects& effects) {
  for (auto at = parts_.begin(); at != parts_.end();)
    at = at->first.first == channel ? asker_gone(at, now, effects) : std::next(at);
}

void TrackParts::on_time(TimeNs now, service::Effects& effects) {
  for (auto at = parts_.begin(); at != parts_.end();) {
    Part& part = at->second;
    if (part.waiting && part.waiting->second <= now) tell(part, now, effects);
    const bool gone = !part.waiting && deadline_after(part.heard, asker_gone_ns) <= now;
    at = gone ? asker_gone(at, now, effects) : std::next(at);
  }
}

TimeNs TrackParts::next_deadline() const noexcept {
  TimeNs next = never;
  for (const auto& [key, part] : parts_)
    next = std::min(next, part.waiting ? part.waiting->second : deadline_after(part.heard, asker_gone_ns));
  return next;
}

}  // namespace offpath::sift
