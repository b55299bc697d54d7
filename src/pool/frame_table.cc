#include "pool/frame_table.h"

#include <algorithm>
#include <utility>

#include "pool/glob.h"
#include "pool/stream_file.h"

namespace offpath::pool {

using mover::FailEffect;
using mover::HandOverEffect;
using mover::ReplyEffect;
using wire::EntryKind;

namespace {

constexpr std::size_t listed_bytes_max = 16 * 1024;  // of one reply; the host asks for the rest
constexpr uid_t root = 0;

std::uint64_t number_of(std::uint64_t token) noexcept { return token & ((1ull << 56) - 1); }

}  // namespace

// ---- pools

Result<FrameTable::Pool*> FrameTable::open(const std::string& name, uid_t user) {
  if (!name.starts_with("local:/"))
    return fail(Error::unsupported, "pool \"{}\": this agent knows pools named local:/NAME", name);
  auto [at, fresh] = pools_.try_emplace(name);
  if (fresh) {
    at->second.user = user;
    ++counters_.pools;
  }
  if (at->second.user != user && user != root)
    return fail(Error::denied, "pool \"{}\" belongs to user {}, not to user {}", name, at->second.user, user);
  return &at->second;
}

Result<FrameTable::Pool*> FrameTable::existing(const std::string& name, uid_t user) {
  const auto at = pools_.find(name);
  if (at == pools_.end()) return fail(Error::not_found, "there is no pool \"{}\"", name);
  return open(name, user);
}

Status FrameTable::admit(const std::string& pool, uid_t user) {
  auto opened = open(pool, user);
  if (!opened) return tl::unexpected(std::move(opened).error());
  return {};
}

void FrameTable::remove(Pool& pool, std::map<Keys, Object>::iterator at) {
  pool.bytes -= at->second.frame->bytes;
  counters_.bytes -= at->second.frame->bytes;
  --counters_.frames;
  if (!at->second.hidden) pool.by_sequence.erase(at->second.sequence);
  pool.objects.erase(at);
}

// Readers see it from now on; it is the newest of its pool, and the oldest may have to leave.
void FrameTable::show(const std::string& name, Pool& pool, std::map<Keys, Object>::iterator at, Effects& effects) {
  at->second.hidden = false;
  at->second.sequence = next_sequence_++;
  pool.by_sequence.emplace(at->second.sequence, at->first);
  serve_waiting(name, at->first, at->second.frame, effects);
}

void FrameTable::keep_newest(Pool& pool, std::uint64_t keep) {
  while (keep > 0 && pool.by_sequence.size() > keep) remove(pool, pool.objects.find(pool.by_sequence.begin()->second));
}

Status FrameTable::put(const Place& place, FramePtr frame, TimeNs, Effects& effects) {
  OFP_ASSIGN(Pool* const pool, open(place.pool, place.user));
  Keys keys{place.row_key, place.column_key};
  if (const auto at = pool->objects.find(keys); at != pool->objects.end()) remove(*pool, at);
  pool->bytes += frame->bytes;
  counters_.bytes += frame->bytes;
  ++counters_.frames;
  ++counters_.puts;
  const auto added = pool->objects.emplace(std::move(keys), Object{std::move(frame), 0, place.keep, true}).first;
  if (place.hidden) return {};
  show(place.pool, *pool, added, effects);
  keep_newest(*pool, place.keep);
  return {};
}

Result<FramePtr> FrameTable::find(const std::string& name, const std::string& row_key, const std::string& column_key,
                                  uid_t user) {
  OFP_ASSIGN(Pool* const pool, existing(name, user));
  const auto at = pool->objects.find({row_key, column_key});
  if (at == pool->objects.end())
    return fail(Error::not_found, "pool \"{}\" has no object ({}, {})", name, row_key, column_key);
  return at->second.frame;
}

Result<std::vector<QuerySource>> FrameTable::choose(const std::string& name, std::string_view row_glob,
                                                    std::string_view column_glob, uid_t user) {
  OFP_ASSIGN(Pool* const pool, existing(name, user));
  std::vector<QuerySource> chosen;
  for (const auto& [sequence, keys] : pool->by_sequence)
    if (glob_matches(row_glob, keys.first) && glob_matches(column_glob, keys.second))
      chosen.push_back({pool->objects.at(keys).frame, keys.first, keys.second});
  if (chosen.empty())
    return fail(Error::not_found, "pool \"{}\" has no objects whose keys match ({}, {})", name, row_glob, column_glob);
  return chosen;
}

void FrameTable::end_step(const std::string& name, const std::string& row_key, std::uint32_t rank, std::uint32_t ranks,
                          TimeNs, Effects& effects) {
  const auto at = pools_.find(name);
  if (at == pools_.end()) return;
  Pool& pool = at->second;
  Step& step = pool.steps[row_key];
  step.ranks = std::max(step.ranks, ranks);
  step.ended.insert(rank);
  if (step.ended.size() < step.ranks) return;
  pool.steps.erase(row_key);
  std::uint64_t keep = 0;
  for (auto object = pool.objects.lower_bound({row_key, ""}); object != pool.objects.end() && object->first.first == row_key;
       ++object) {
    if (!object->second.hidden) continue;
    show(name, pool, object, effects);
    keep = std::max(keep, object->second.keep);
  }
  keep_newest(pool, keep);
}

// ---- channels

void FrameTable::on_channel_open(ChannelNumber channel, uid_t user) { channels_[channel].user = user; }

void FrameTable::on_channel_closed(ChannelNumber channel) {
  const auto at = channels_.find(channel);
  if (at == channels_.end()) return;
  counters_.leases -= at->second.leases.size();
  channels_.erase(at);
  counters_.waiting -= std::erase_if(waiting_, [channel](const Waiting& each) { return each.channel == channel; });
  std::erase_if(writes_, [channel](const Write& each) { return each.channel == channel; });
}

void FrameTable::on_offer(ChannelNumber channel, std::uint64_t number, Fd fd, Effects& effects) {
  const auto at = channels_.find(channel);
  if (at == channels_.end()) return;
  const auto asked = std::ranges::find_if(
      writes_, [&](const Write& each) { return each.channel == channel && each.offer == number; });
  if (asked != writes_.end()) {
    const Write write = std::move(*asked);
    writes_.erase(asked);
    return begin_write(write, at->second, std::move(fd), effects);
  }
  at->second.offers.clear();  // one at a time: the host offers, then asks
  at->second.offers.emplace(number, std::move(fd));
}

void FrameTable::on_request(ChannelNumber number, const channel::Entry& request, TimeNs now, Effects& effects) {
  Channel& channel = channels_.at(number);
  switch (static_cast<EntryKind>(request.kind)) {
    case EntryKind::pool_get: return get(channel, request, number, now, effects);
    case EntryKind::pool_list: return list(channel, request, number, effects);
    case EntryKind::pool_drop: return drop(channel, request, number, effects);
    case EntryKind::pool_write: return write(channel, request, number, now, effects);
    case EntryKind::release: {
      wire::Release release{};
      if (wire::decode(request.payload, release)) counters_.leases -= channel.leases.erase(release.lease);
      return;
    }
    default: OFP_ASSERT(!"a request of another service");
  }
}

// ---- get

void FrameTable::get(Channel& channel, const channel::Entry& request, ChannelNumber number, TimeNs now, Effects& effects) {
  const auto refuse = [&](Failure failure) {
    effects.push_back(FailEffect{number, request.ticket, wire::any_reply, std::move(failure)});
  };
  wire::PoolGet get{};
  if (auto status = wire::decode(request.payload, get); !status) return refuse(std::move(status).error());
  if (channel.leases.size() >= limits_.leases_max)
    return refuse({Error::too_large, fmt::format("the program holds {} frames, which is the limit; release some",
                                                 channel.leases.size())});
  ++counters_.gets;
  Waiting waiting{number, request.ticket, std::string(get.pool), {std::string(get.row_key), std::string(get.column_key)},
                  get.segment, deadline_after(now, get.wait_ns)};
  if (const auto at = pools_.find(waiting.pool); at != pools_.end()) {
    if (auto pool = open(waiting.pool, channel.user); !pool) return refuse(std::move(pool).error());
    const auto object = at->second.objects.find(waiting.keys);
    if (object != at->second.objects.end() && !object->second.hidden) return answer(waiting, object->second.frame, effects);
  }
  if (get.wait_ns == 0) return refuse({Error::not_found, describe_absence(waiting)});
  if (waiting_.size() >= limits_.waiting_max)
    return refuse({Error::too_large, fmt::format("{} requests are waiting for objects, which is the limit", waiting_.size())});
  waiting_.push_back(std::move(waiting));
  ++counters_.waiting;
}

std::string FrameTable::describe_absence(const Waiting& waiting) const {
  const auto& [row, column] = waiting.keys;
  const auto at = pools_.find(waiting.pool);
  if (at == pools_.end()) return fmt::format("there is no pool \"{}\"", waiting.pool);
  if (const auto step = at->second.steps.find(row); step != at->second.steps.end())
    return fmt::format("pool \"{}\": {} of {} ranks have ended step \"{}\"", waiting.pool, step->second.ended.size(),
                       step->second.ranks, row);
  if (at->second.objects.contains(waiting.keys))
    return fmt::format("pool \"{}\": step \"{}\" has not been ended by any rank", waiting.pool, row);
  return fmt::format("pool \"{}\" has no object ({}, {})", waiting.pool, row, column);
}

void FrameTable::answer(const Waiting& waiting, const FramePtr& frame, Effects& effects) {
  const auto channel = channels_.find(waiting.channel);
  if (channel == channels_.end()) return;
  wire::Got got{.how = wire::Got::How::descriptor, .arrow = frame->arrow, .lease = 0, .length = frame->bytes, .rows = frame->rows};
  if (waiting.segment == 0) {
    got.lease = next_lease_++;
    channel->second.leases.emplace(got.lease, frame);
    ++counters_.leases;
    effects.push_back(HandOverEffect{waiting.channel, waiting.ticket, frame, got});
    return;
  }
  got.how = wire::Got::How::pushed;
  const std::uint64_t token = next_token_++;
  transfers_.emplace(token, Transfer{waiting.channel, waiting.ticket, got, nullptr});
  effects.push_back(mover::PushEffect{waiting.channel, mover::token_of(mover::Service::pool, token),
                                      {{waiting.segment, 0, frame->buffer.data(), frame->bytes}}, frame});
}

void FrameTable::serve_waiting(const std::string& pool, const Keys& keys, const FramePtr& frame, Effects& effects) {
  const auto served = [&](const Waiting& waiting) {
    if (waiting.keys != keys || waiting.pool != pool) return false;
    const auto channel = channels_.find(waiting.channel);
    if (channel == channels_.end()) return true;
    if (auto allowed = open(pool, channel->second.user); !allowed)
      effects.push_back(FailEffect{waiting.channel, waiting.ticket, wire::any_reply, std::move(allowed).error()});
    else
      answer(waiting, frame, effects);
    return true;
  };
  if (!waiting_.empty()) counters_.waiting -= std::erase_if(waiting_, served);
}

void FrameTable::on_transfer(ChannelNumber, std::uint64_t token, Status status, Effects& effects) {
  const auto at = transfers_.find(number_of(token));
  if (at == transfers_.end()) return;
  const Transfer transfer = at->second;
  transfers_.erase(at);
  if (status) effects.push_back(ReplyEffect{transfer.channel, transfer.ticket, transfer.got});
  else effects.push_back(FailEffect{transfer.channel, transfer.ticket, wire::any_reply, std::move(status).error()});
}

void FrameTable::on_time(TimeNs now, Effects& effects) {
  const auto late = [&](const Waiting& waiting) {
    if (waiting.deadline > now) return false;
    effects.push_back(FailEffect{waiting.channel, waiting.ticket, wire::any_reply, {Error::timeout, describe_absence(waiting)}});
    return true;
  };
  counters_.waiting -= std::erase_if(waiting_, late);
  std::erase_if(writes_, [&](const Write& write) {
    if (write.deadline > now) return false;
    Failure why{Error::invalid, fmt::format("no descriptor was offered under number {}", write.offer)};
    effects.push_back(FailEffect{write.channel, write.ticket, wire::any_reply, std::move(why)});
    return true;
  });
}

TimeNs FrameTable::next_deadline() const noexcept {
  TimeNs next = never;
  for (const Waiting& waiting : waiting_) next = std::min(next, waiting.deadline);
  for (const Write& write : writes_) next = std::min(next, write.deadline);
  return next;
}

// ---- list, drop, write

void FrameTable::list(Channel& channel, const channel::Entry& request, ChannelNumber number, Effects& effects) {
  const auto refuse = [&](Failure failure) {
    effects.push_back(FailEffect{number, request.ticket, wire::any_reply, std::move(failure)});
  };
  wire::PoolList list{};
  if (auto status = wire::decode(request.payload, list); !status) return refuse(std::move(status).error());
  auto pool = existing(std::string(list.pool), channel.user);
  if (!pool) return refuse(std::move(pool).error());
  wire::Listed listed{};
  std::size_t bytes = 0;
  for (auto at = (*pool)->by_sequence.upper_bound(list.after); at != (*pool)->by_sequence.end(); ++at) {
    const Object& object = (*pool)->objects.at(at->second);
    const auto& [row, column] = at->second;
    if (!glob_matches(list.row_glob, row) || !glob_matches(list.column_glob, column)) continue;
    bytes += 28 + row.size() + column.size();
    if (bytes > listed_bytes_max) {
      listed.more = true;
      break;
    }
    listed.entries.push_back({at->first, object.frame->bytes, object.frame->rows, row, column});
  }
  effects.push_back(mover::ListedEffect{number, request.ticket, std::move(listed)});
}

Result<std::uint64_t> FrameTable::drop(const std::string& name, std::string_view row_glob, std::string_view column_glob,
                                       uid_t user) {
  OFP_ASSIGN(Pool* const pool, existing(name, user));
  std::uint64_t dropped = 0;
  for (auto at = pool->objects.begin(); at != pool->objects.end();) {
    const auto next = std::next(at);
    if (glob_matches(row_glob, at->first.first) && glob_matches(column_glob, at->first.second)) {
      remove(*pool, at);
      ++dropped;
    }
    at = next;
  }
  counters_.drops += dropped;
  return dropped;
}

void FrameTable::drop(Channel& channel, const channel::Entry& request, ChannelNumber number, Effects& effects) {
  wire::PoolDrop asked{};
  auto dropped = wire::decode(request.payload, asked)
                     .and_then([&] { return drop(std::string(asked.pool), asked.row_glob, asked.column_glob, channel.user); });
  if (dropped) effects.push_back(ReplyEffect{number, request.ticket, wire::Done{*dropped}});
  else effects.push_back(FailEffect{number, request.ticket, wire::any_reply, std::move(dropped).error()});
}

void FrameTable::write(Channel& channel, const channel::Entry& request, ChannelNumber number, TimeNs now, Effects& effects) {
  const auto refuse = [&](Failure failure) {
    effects.push_back(FailEffect{number, request.ticket, wire::any_reply, std::move(failure)});
  };
  wire::PoolWrite write{};
  if (auto status = wire::decode(request.payload, write); !status) return refuse(std::move(status).error());
  if (auto pool = existing(std::string(write.pool), channel.user); !pool) return refuse(std::move(pool).error());
  Write asked{number, request.ticket, std::string(write.pool), write.offer, deadline_after(now, limits_.offer_wait_ns)};
  if (const auto offer = channel.offers.find(write.offer); offer != channel.offers.end()) {
    Fd fd = std::move(offer->second);
    channel.offers.erase(offer);
    return begin_write(asked, channel, std::move(fd), effects);
  }
  const auto waits = [number](const Write& each) { return each.channel == number; };
  if (const auto other = std::ranges::find_if(writes_, waits); other != writes_.end())
    return refuse({Error::too_large, fmt::format("a write waits for descriptor {}; one at a time, not {} too", other->offer, write.offer)});
  writes_.push_back(std::move(asked));
}

void FrameTable::begin_write(const Write& write, const Channel& channel, Fd descriptor, Effects& effects) {
  auto pool = existing(write.pool, channel.user);
  if (!pool) {
    effects.push_back(FailEffect{write.channel, write.ticket, wire::any_reply, std::move(pool).error()});
    return;
  }
  const auto fd = std::make_shared<Fd>(std::move(descriptor));
  std::vector<FramePtr> frames;
  for (const auto& [sequence, keys] : (*pool)->by_sequence) frames.push_back((*pool)->objects.at(keys).frame);
  const auto written = std::make_shared<std::uint64_t>(0);
  const std::uint64_t token = next_token_++;
  transfers_.emplace(token, Transfer{write.channel, write.ticket, {}, written});
  effects.push_back(mover::JobEffect{mover::token_of(mover::Service::pool, token),
                                     [frames = std::move(frames), fd, written]() -> Status {
                                       OFP_ASSIGN(*written, write_stream(frames, fd->get()));
                                       return {};
                                     }});
}

void FrameTable::on_job(std::uint64_t token, Status status, Effects& effects) {
  const auto at = transfers_.find(number_of(token));
  if (at == transfers_.end()) return;
  const Transfer transfer = at->second;
  transfers_.erase(at);
  counters_.written_bytes += *transfer.written;
  if (status) effects.push_back(ReplyEffect{transfer.channel, transfer.ticket, wire::Done{*transfer.written}});
  else effects.push_back(FailEffect{transfer.channel, transfer.ticket, wire::any_reply, std::move(status).error()});
}

std::vector<FrameTable::PoolStatus> FrameTable::pools() const {
  std::vector<PoolStatus> all;
  for (const auto& [name, pool] : pools_) {
    std::uint64_t rows = 0;
    for (const auto& [keys, object] : pool.objects) rows += object.frame->rows;
    all.push_back({name, pool.user, pool.objects.size(), pool.bytes, rows});
  }
  return all;
}

}  // namespace offpath::pool
