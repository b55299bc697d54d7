#include "sift/sift_service.h"

#include <algorithm>
#include <utility>

#include <fmt/ranges.h>

#include "base/log.h"
#include "pool/directory/placement.h"
#include "sift/member_ranges.h"
#include "wire/limits.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/peer_messages.h"
#include "wire/messages/replies.h"
#include "wire/messages/sift_messages.h"

namespace offpath::sift {

using service::AskedMemory;
using wire::EntryKind;

namespace {

// The pool's name with the members' names instead of patterns.
std::string with_members(std::string_view text, std::string_view members) {
  std::vector<std::string> options;
  for (std::string_view rest = text.size() > name_in(text).size() ? text.substr(name_in(text).size() + 1)
                                                                  : std::string_view{};
       !rest.empty();) {
    const std::string_view option = rest.substr(0, rest.find('&'));
    if (!option.starts_with("members=") && !option.starts_with("wait=")) options.emplace_back(option);
    rest.remove_prefix(std::min(rest.size(), option.size() + 1));
  }
  options.push_back(fmt::format("members={}", members));
  return fmt::format("{}?{}", name_in(text), fmt::join(options, "&"));
}

std::vector<std::string> split_names(std::string_view text) {
  std::vector<std::string> names;
  while (true) {
    const std::size_t end = text.find(',');
    names.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return names;
    text.remove_prefix(end + 1);
  }
}

bool same_names(std::string_view one, std::string_view other) {
  std::vector<std::string> names = split_names(one), others = split_names(other);
  std::ranges::sort(names);
  std::ranges::sort(others);
  return names == others;
}

}  // namespace

SiftService::SiftService(const SiftServiceOptions& options, std::shared_ptr<service::BufferCache> buffers,
                         std::function<bool(std::uint64_t)> room, pool::Pools& pools)
    : options_(options),
      buffers_(std::move(buffers)),
      pools_(pools),
      intake_(buffers_, options.object_bytes_max, std::move(room),
              [this](ChannelNumber channel, std::uint64_t number) { return pools_.take_offer(channel, number); }),
      alive_{""} {}

SiftService::~SiftService() = default;

void SiftService::set_self(std::string name, std::uint64_t process) {
  self_ = std::move(name);
  process_ = process;
  alive_ = {self_};
}

std::vector<SiftService::PoolStatus> SiftService::pools() const {
  std::vector<PoolStatus> all;
  for (const auto& [name, pool] : by_name_) {
    PoolStatus status{pool->name,
                      pool->text,
                      pool->user,
                      pool->sift->track_bytes(),
                      {},
                      pool->settings.kept(),
                      pool->sift->is_restored(),
                      pool->agreed,
                      pool->rival};
    for (std::uint32_t stage = 1; stage <= pool->settings.track_stage(); ++stage)
      status.stages.push_back(pool->sift->counters(stage));
    all.push_back(std::move(status));
  }
  return all;
}

// ---- pools

Status SiftService::may_use(const Pool& pool, uid_t user) {
  if (pool.user == user || user == 0) return {};
  return fail(Error::denied, "pool \"{}\" belongs to user {}, not to user {}", pool.name, pool.user, user);
}

Result<SiftService::Pool*> SiftService::find(std::string_view text) {
  const auto known = by_name_.find(name_in(text));
  if (known == by_name_.end()) return nullptr;
  if (text.size() == name_in(text).size() || text == known->second->text ||
      known->second->replaced.contains(std::string(text)))
    return known->second.get();
  OFP_ASSIGN(const Settings asked, parse_settings(text));
  const std::string& wanted = asked.members;
  const bool patterns = wanted.find_first_of("*?[") != std::string::npos;
  if (!wanted.empty() && !patterns && !same_names(wanted, known->second->settings.members))
    return fail(
        Error::exists,
        "pool \"{}\" has the members {}, and not {}: they are the members that lived when it was made, as long as "
        "it exists; "
        "drop it to make it again",
        name_in(text), member_ranges(split_names(known->second->settings.members)), member_ranges(split_names(wanted)));
  if (!same_but_members(asked, known->second->settings))
    return fail(Error::exists, "pool \"{}\" exists already, as \"{}\"; leave the options out to use it", text,
                known->second->text);
  return known->second.get();
}

Result<SiftService::Pool*> SiftService::existing(std::string_view text, uid_t user) {
  OFP_ASSIGN(Pool* const pool, find(text));
  if (pool == nullptr) OFP_TRY(may_make(text));
  if (pool == nullptr && awaited_.contains(name_in(text)))
    return fail(Error::not_found, "pool \"{}\" waits for more of its members: {} live", name_in(text), alive_.size());
  if (pool == nullptr) return fail(Error::not_found, "there is no pool \"{}\"", name_in(text));
  OFP_TRY(may_use(*pool, user));
  return pool;
}

Result<SiftService::Pool*> SiftService::define(std::string_view text, uid_t user, service::Effects& effects) {
  OFP_ASSIGN(Pool* const known, find(text));
  if (known != nullptr) {
    OFP_TRY(may_use(*known, user));
    return known;
  }
  OFP_TRY(may_make(text));
  if (const auto awaited = awaited_.find(name_in(text));
      awaited != awaited_.end() && text.size() == name_in(text).size() && awaited->second.text != text) {
    if (user != awaited->second.user && user != 0)
      return fail(Error::denied, "pool \"{}\" belongs to user {}, not to user {}", text, awaited->second.user, user);
    return define(std::string(awaited->second.text), awaited->second.user, effects);
  }
  OFP_ASSIGN(Settings settings, parse_settings(text));
  const auto own = std::ranges::count_if(by_name_, [&](const auto& each) { return each.second->user == user; });
  if (static_cast<std::size_t>(own) >= options_.user_pools_max)
    return fail(Error::too_large,
                "user {} has {} sift pools, which is the limit of each user (limits.user_pools_max); drop one", user,
                own);
  pool::PoolOptions chosen;
  if (!settings.members.empty()) chosen.members = split_names(settings.members);
  // Members that are given by their full names need not live: another member may have made the pool.
  std::vector<std::string> members = pool::members_of(chosen, alive_);
  if (members.size() < settings.wait)
    return fail(Error::would_block, "pool \"{}\" waits for {} members, of which {} live", name_in(text), settings.wait,
                members.size());
  const bool patterns = std::ranges::any_of(
      chosen.members, [](const std::string& name) { return name.find_first_of("*?[") != std::string::npos; });
  if (!patterns) {
    members = chosen.members;
    std::ranges::sort(members);
  }
  if (members.empty()) return fail(Error::not_found, "pool \"{}\": none of its members lives", text);
  std::string full = with_members(text, fmt::format("{}", fmt::join(members, ",")));
  if (full.size() > wire::pool_bytes_max) full = with_members(text, member_ranges(members));
  if (full.size() > wire::pool_bytes_max)
    return fail(
        Error::too_large,
        "pool \"{}\": its name with the names of its {} members has {} bytes, at most {} are allowed; numbered names "
        "are written as ranges",
        name_in(text), members.size(), full.size(), wire::pool_bytes_max);
  OFP_ASSIGN(settings, parse_settings(full));
  const bool takes_part = std::ranges::find(members, self_) != members.end();
  if (!takes_part)
    return fail(Error::unsupported, "pool \"{}\": this agent, {}, is not one of its members", full, self_);
  auto made = std::make_unique<Pool>();
  made->name = name_in(text);
  made->text = full;
  made->user = user;
  made->settings = settings;
  OFP_ASSIGN(
      made->sift,
      Sift::make({.settings = settings, .self = {self_, process_}, .memory = {buffers_, user}, .kept = settings.kept()},
                 members));
  OFP_TRY(open_own(*made, pools_.now(), effects));
  Pool* const pool = by_name_.emplace(made->name, std::move(made)).first->second.get();
  if (auto awaited = awaited_.extract(pool->name)) pool->deferred = std::move(awaited.mapped().deferred);
  set_ask_at(*pool, 0);  // in the next round, which knows the time
  if (full != text && missing(*pool, 0).empty()) agree(*pool, pools_.now(), effects);
  return pool;
}

// A restarted member has lost its pools, unless they were on its disk.
void SiftService::on_members(std::vector<std::string> alive, const std::vector<std::string>& anew, TimeNs now,
                             service::Effects& effects) {
  const std::vector<std::string> before = std::exchange(alive_, std::move(alive));
  for (const auto& [name, pool] : by_name_) {
    for (const std::string& member : anew) pool->heard.erase(member);
    for (const std::string& member : alive_)  // other agents may have another pool of the name
      if (member != self_ &&
          (!std::ranges::binary_search(before, member) || std::ranges::find(anew, member) != anew.end()))
        tell(*pool, member, now, effects);
    work_on_agreement(*pool, now, effects);
  }
  make_awaited(now, effects);
}

// The name with all its settings: it makes the pool again if it was dropped meanwhile.
Result<std::string> SiftService::admit(const std::string& pool, uid_t user, service::Effects& effects) {
  auto made = define(pool, user, effects);
  if (made) return (*made)->text;
  if (made.error().code != Error::would_block) return tl::unexpected(std::move(made).error());
  return await(pool, user, made.error());
}

Status SiftService::make(const std::string& pool, uid_t user, service::Effects& effects) {
  OFP_TRY(admit(pool, user, effects));
  return {};
}

Result<mover::Stored> SiftService::put(const mover::Store::Place& place, service::FramePtr frame, std::uint64_t token,
                                       TimeNs now, service::Effects& effects) {
  const Deferred again = [this, place, frame, token](TimeNs then, service::Effects& more) {
    if (auto stored = put(place, frame, token, then, more); !stored)
      more.push_back(service::StoredEffect{token, tl::unexpected(stored.error())});
  };
  auto defined = define(place.pool, place.user, effects);
  if (!defined && defined.error().code == Error::would_block) {
    OFP_TRY(await(place.pool, place.user, defined.error()));
    awaited_.find(name_in(place.pool))->second.deferred.push_back(again);
    return mover::Stored::later;
  }
  if (!defined) return tl::unexpected(std::move(defined).error());
  Pool* const pool = *defined;
  OFP_TRY(may_put(*pool, now));
  if (!is_ready(*pool)) {
    pool->deferred.push_back(again);
    return mover::Stored::later;
  }
  const std::uint64_t number = next_++;
  sources_.emplace(number, Source{.kind = Source::Kind::put, .pool = pool, .token = token});
  pool->sift->on_put(number, place.row_key, std::move(frame), now, pool->pending);
  carry_out(*pool, now, effects);
  return mover::Stored::later;
}

// ---- effects of a Sift

std::uint64_t SiftService::work(Work::Kind kind, Pool* pool, std::uint64_t token) {
  const std::uint64_t number = next_++;
  works_.emplace(number, Work{kind, pool, token});
  return service::token_of(service::ServiceId::sift, number);
}

// Effects may cause others, which are appended and carried out in order.
void SiftService::carry_out(Pool& pool, TimeNs now, service::Effects& effects) {
  if (pool.carrying) return;  // called from within: the outer call carries it out
  pool.carrying = true;
  for (std::size_t i = 0; i < pool.pending.size(); ++i) {
    Effect effect = std::move(pool.pending[i]);
    if (auto* pull = std::get_if<PullEffect>(&effect)) {
      if (!begin_pull(pool, pull->token, now, effects)) wait_for_pull(pool, pull->token);
    } else if (auto* answer = std::get_if<AnswerEffect>(&effect)) {
      answered(pool, *answer, now, effects);
    } else if (auto* offered = std::get_if<PublishEffect>(&effect)) {
      publish(pool, *offered, now, effects);
    } else if (auto* job = std::get_if<JobEffect>(&effect)) {
      effects.push_back(service::JobEffect{work(Work::Kind::job, &pool, job->token), std::move(job->run)});
    } else if (auto* over = std::get_if<FlushedEffect>(&effect)) {
      const auto node = sources_.extract(over->token);
      const Source& source = node.mapped();
      if (source.token != 0)
        flushed(source.token, over->status ? Result<std::uint64_t>(0) : tl::unexpected(over->status.error()), now,
                effects);
      else if (over->status)
        effects.push_back(service::ReplyEffect{source.channel, source.ticket, wire::Done{0}});
      else
        effects.push_back(service::FailEffect{source.channel, source.ticket, wire::any_reply, over->status.error()});
    } else if (auto* kept = std::get_if<KeepEffect>(&effect)) {
      keep(pool, *kept, now, effects);
    } else if (auto* forgotten = std::get_if<ForgetEffect>(&effect)) {
      pools_.forget(pool.own, {pool.row, std::move(forgotten->name)}, now, effects);
    } else if (auto* wanted = std::get_if<ReadEffect>(&effect)) {
      read(pool, *wanted, now, effects);
    }
  }
  pool.pending.clear();
  pool.carrying = false;
  note_deadline(pool);
  serve_deferred(pool, now, effects);
}

void SiftService::answered(Pool& pool, const AnswerEffect& answer, TimeNs now, service::Effects& effects) {
  const auto node = sources_.extract(answer.token);
  if (!node) return;
  const Source& source = node.mapped();
  switch (source.kind) {
    case Source::Kind::put:
      effects.push_back(service::StoredEffect{source.token, answer.status});
      return;
    case Source::Kind::own:
      pool.sift->on_published(source.token, answer.status, now, pool.pending);
      return;
    case Source::Kind::offer:
      if (answer.status)
        effects.push_back(service::ReplyEffect{source.channel, source.ticket, wire::Done{0}});
      else
        effects.push_back(service::FailEffect{source.channel, source.ticket, wire::any_reply, answer.status.error()});
      return;
    case Source::Kind::flush:
      return;
  }
}

void SiftService::publish(Pool& pool, PublishEffect& publish, TimeNs now, service::Effects& effects) {
  const std::uint64_t bytes = publish.frame ? publish.frame->bytes : 0;
  if (publish.member == self_) {
    const std::uint64_t number = next_++;
    sources_.emplace(number, Source{.kind = Source::Kind::own, .pool = &pool, .token = publish.token});
    pool.sift->on_offer(number, std::move(publish.header), bytes, std::move(publish.frame), now, pool.pending);
    return;
  }
  const auto header = std::make_shared<std::vector<std::byte>>(encode(publish.header));
  service::AskEffect ask{work(Work::Kind::publish, &pool, publish.token),
                         publish.member,
                         EntryKind::peer_piece,
                         deadline_after(now, options_.piece_wait_ns),
                         publish.frame,
                         0,
                         [header, bytes, user = std::uint64_t{pool.user}, text = pool.text](
                             const AskedMemory& memory, std::vector<std::byte>& payload) {
                           wire::PeerPiece piece{user, memory.offer, memory.bytes, text, *header};
                           piece.object.length = bytes;
                           wire::encode(piece, payload);
                         }};
  ask.payload_bytes = header->size() + pool.text.size() + 128;
  effects.push_back(std::move(ask));
}

// False: there is no room, or its descriptor has not arrived.
bool SiftService::begin_pull(Pool& pool, std::uint64_t token, TimeNs now, service::Effects& effects) {
  const auto source = sources_.find(token);
  if (source == sources_.end()) return true;  // its channel is gone
  const std::uint64_t mine = work(Work::Kind::pull, &pool, token);
  auto begun = intake_.begin(mine, source->second.object, now, effects);
  if (begun && *begun == pool::Intake::Begun::later) return true;
  works_.erase(service::number_of(mine));
  if (begun && *begun == pool::Intake::Begun::not_yet) return false;
  if (begun)
    pool.sift->on_pulled(token, intake_.end(mine, {}), now, pool.pending);
  else
    pool.sift->on_pulled(token, tl::unexpected(std::move(begun).error()), now, pool.pending);
  return true;
}

void SiftService::wait_for_pull(Pool& pool, std::uint64_t token) {
  waiting_.emplace_back(&pool, token);
  if (const auto source = sources_.find(token); source != sources_.end())
    waiting_times_.set(token, source->second.object.deadline());
}

void SiftService::pull_waiting(TimeNs now, service::Effects& effects) {
  (void)waiting_times_.take(now);
  for (std::size_t left = waiting_.size(); left > 0; --left) {
    const auto [pool, token] = waiting_.front();
    waiting_.pop_front();
    waiting_times_.erase(token);
    if (!begin_pull(*pool, token, now, effects)) wait_for_pull(*pool, token);
    carry_out(*pool, now, effects);
  }
}

// ---- completions

void SiftService::on_transfer(std::uint64_t token, const Status& status, TimeNs now, service::Effects& effects) {
  on_job(token, status, now, effects);
}

void SiftService::on_job(std::uint64_t token, Status status, TimeNs now, service::Effects& effects) {
  const auto node = works_.extract(service::number_of(token));
  if (!node) return;
  const Work& done = node.mapped();
  switch (done.kind) {
    case Work::Kind::pull:
      done.pool->sift->on_pulled(done.token, intake_.end(token, status), now, done.pool->pending);
      break;
    case Work::Kind::job:
      done.pool->sift->on_job(done.token, status, now, done.pool->pending);
      break;
    case Work::Kind::tracks: {
      const auto read = reading_.extract(done.token);
      const pool::FrameTable::Get& get = read.mapped().get;
      if (status)
        pools_.answer(get, *read.mapped().frame, now, effects);
      else
        effects.push_back(service::FailEffect{get.channel, get.ticket, wire::any_reply, status.error()});
      return;
    }
    case Work::Kind::publish:
    case Work::Kind::flush:
    case Work::Kind::keep:
    case Work::Kind::read:
    case Work::Kind::open:
    case Work::Kind::tell:
      return;
  }
  carry_out(*done.pool, now, effects);
  forget_dropped();
}

void SiftService::on_answer(std::uint64_t token, Result<service::Answer> answer, TimeNs now,
                            service::Effects& effects) {
  const auto node = works_.extract(service::number_of(token));
  if (!node) return;
  const Work& done = node.mapped();
  Status status;
  if (!answer) status = tl::unexpected(answer.error());
  if (done.kind == Work::Kind::tell) {
    const auto known = by_name_.find(done.pool->name);
    if (known != by_name_.end() && known->second.get() == done.pool)
      on_told(*done.pool, done.member, answer, now, effects);
    return forget_dropped();
  }
  if (done.kind == Work::Kind::flush) {
    wire::Done newer{};
    if (answer) status = wire::decode(answer->payload, newer);
    flushed(done.token, status ? Result<std::uint64_t>(newer.value) : tl::unexpected(status.error()), now, effects);
    return forget_dropped();
  }
  done.pool->sift->on_published(done.token, status, now, done.pool->pending);
  carry_out(*done.pool, now, effects);
  forget_dropped();
}

void SiftService::on_descriptor(TimeNs now, service::Effects& effects) {
  if (!waiting_.empty()) pull_waiting(now, effects);
}

void SiftService::on_time(TimeNs now, service::Effects& effects) {
  pull_waiting(now, effects);
  read_identities(now, effects);
  for (const std::string& name : times_.take(now)) {
    const auto known = by_name_.find(name);
    if (known == by_name_.end()) continue;
    Pool& pool = *known->second;
    if (pool.ask_at <= now) work_on_agreement(pool, now, effects);
    if (pool.due <= now) work_on_opening(pool, now, effects);
    if (pool.sift->next_deadline() <= now) {
      pool.sift->on_time(now, pool.pending);
      carry_out(pool, now, effects);
    }
    note_deadline(pool);
  }
  if (std::exchange(forget_later_, false)) forget_dropped();
}

TimeNs SiftService::next_deadline() const noexcept {
  if (forget_later_ && !dropped_.empty()) return 0;
  TimeNs next = std::min(times_.first(), waiting_times_.first());
  for (const auto& [own, unread] : unread_) next = std::min(next, unread.again_at);  // only after a restart
  return next;
}

void SiftService::set_due(Pool& pool, TimeNs at) {
  pool.due = at;
  note_deadline(pool);
}

void SiftService::set_ask_at(Pool& pool, TimeNs at) {
  pool.ask_at = at;
  note_deadline(pool);
}

// A dropped pool, or one that is being made, has none.
void SiftService::note_deadline(const Pool& pool) {
  const auto known = by_name_.find(pool.name);
  if (known != by_name_.end() && known->second.get() == &pool)
    times_.set(pool.name, std::min({pool.sift->next_deadline(), pool.due, pool.ask_at}));
}

void SiftService::on_channel_closed(ChannelNumber channel, TimeNs now, service::Effects& effects) {
  channels_.erase(channel);
  std::vector<std::pair<Pool*, std::uint64_t>> gone;
  for (const auto& [token, source] : sources_)
    if (source.kind == Source::Kind::offer && source.channel == channel) gone.emplace_back(source.pool, token);
  for (const auto& [pool, token] : gone) {
    std::erase_if(waiting_, [&, number = token](const auto& each) { return each.second == number; });
    waiting_times_.erase(token);
    for (auto at = works_.begin(); at != works_.end();) {
      const bool its = at->second.kind == Work::Kind::pull && at->second.token == token;
      if (its) intake_.forget(service::token_of(service::ServiceId::sift, at->first));
      at = its ? works_.erase(at) : std::next(at);
    }
    sources_.erase(token);
    pool->sift->on_offer_gone(token, now, pool->pending);
    carry_out(*pool, now, effects);
  }
  forget_dropped();
}

}  // namespace offpath::sift
