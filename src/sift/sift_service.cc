#include "sift/sift_service.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "sift/definition.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/peer_messages.h"
#include "wire/messages/replies.h"
#include "wire/messages/sift_messages.h"

namespace offpath::sift {

using service::AskedMemory;
using wire::EntryKind;

SiftService::SiftService(const SiftServiceOptions& options, std::shared_ptr<service::BufferCache> buffers,
                         std::function<bool(std::uint64_t)> room, pool::Pools& pools)
    : options_(options),
      buffers_(std::move(buffers)),
      pools_(pools),
      pulls_(buffers_, options.object_bytes_max, std::move(room),
             [this](ChannelNumber channel, std::uint64_t number) { return pools_.take_offer(channel, number); }),
      reads_(options.tracks_bytes_max, [this](const pool::Get& get, const FramePtr& frame, TimeNs now,
                                              service::Effects& effects) { pools_.answer(get, frame, now, effects); }),
      parts_([this] { return next_++; },
             [this](const TrackParts::Asker& to, Result<wire::Written> answer, TimeNs, service::Effects& effects) {
               if (!to.channel)
                 own_parts_.emplace_back(to.ticket, std::move(answer));
               else if (answer)
                 effects.push_back(service::ReplyEffect{*to.channel, to.ticket, *answer});
               else
                 effects.push_back(service::FailEffect{*to.channel, to.ticket, wire::any_reply, answer.error()});
             }),
      writes_([this] { return next_++; }, options.ask_wait_ns,
              [this](const TrackWrites::Ask& ask, const TrackWrites::Wanted& wanted, TimeNs now,
                     service::Effects& effects) { ask_to_write(ask, wanted, now, effects); }),
      unread_(pools, [this](const std::string& own, uid_t user, const Result<Identity>& identity, TimeNs now,
                            service::Effects& effects) { on_identity(own, user, identity, now, effects); }),
      alive_{""} {}

void SiftService::set_self(std::string name, std::uint64_t process) {
  self_ = std::move(name);
  process_ = process;
  alive_ = {self_};
  parts_.set_self(self_);
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
                      pool->agreement.is_agreed(),
                      pool->agreement.rival()};
    for (std::uint32_t stage = 1; stage <= pool->settings.track_stage(); ++stage)
      status.stages.push_back(pool->sift->counters(stage));
    all.push_back(std::move(status));
  }
  return all;
}

std::vector<SiftService::Known> SiftService::known() const {
  std::vector<Known> all;
  for (const auto& [name, pool] : by_name_)
    all.push_back({pool->text, pool->user,
                   !pool->agreement.rival().empty() ? "rival"
                   : pool->agreement.is_agreed()    ? "ready"
                                                    : "agrees"});
  for (const auto& [name, awaited] : awaited_)
    if (!by_name_.contains(name)) all.push_back({awaited.text, awaited.user, "waits"});
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
  const Pool& pool = *known->second;
  if (!pool.replaced.contains(std::string(text))) OFP_TRY(check_same(text, pool.settings, pool.text));
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
  OFP_ASSIGN(const Definition definition, definition_of(text, settings, alive_, place_of_));
  OFP_ASSIGN(settings, parse_settings(definition.text));
  if (std::ranges::find(definition.members, self_) == definition.members.end())
    return fail(Error::unsupported, "pool \"{}\": this agent, {}, is not one of its members", definition.text, self_);
  OFP_ASSIGN(
      std::unique_ptr<Sift> sift,
      Sift::make({.settings = settings, .self = {self_, process_}, .memory = {buffers_, user}, .kept = settings.kept()},
                 definition.members));
  const std::uint32_t position = sift->geometry().position_of(self_);
  auto made = std::make_unique<Pool>(
      Pool{.name = std::string(name_in(text)),
           .text = definition.text,
           .user = user,
           .settings = std::move(settings),
           .sift = std::move(sift),
           .agreement = Agreement(self_, definition.text, definition.members),
           .flushes = FlushRounds(std::string(name_in(text)), position, definition.members.size())});
  if (made->settings.kept()) OFP_TRY(open_kept(*made, effects));
  Pool* const pool = by_name_.emplace(made->name, std::move(made)).first->second.get();
  ++changes_;
  if (auto awaited = awaited_.extract(pool->name)) pool->deferred = std::move(awaited.mapped().deferred);
  note_deadline(*pool);  // the next round, which knows the time, asks the members
  if (pool->text != text && pool->agreement.missing(alive_, 0).empty())
    after(*pool, pool->agreement.agree(pools_.now()), {}, pools_.now(), effects);
  return pool;
}

Status SiftService::open_kept(Pool& pool, service::Effects& effects) {
  pool.kept = std::make_unique<KeptStore>(
      KeptStore::Options{.name = pool.name,
                         .text = pool.text,
                         .user = pool.user,
                         .settings = pool.settings,
                         .memory = {buffers_, pool.user},
                         .self = self_,
                         .process = process_,
                         .moves_ns = options_.piece_wait_ns},
      pool.sift->geometry(), pools_,
      KeptStore::Events{
          .found =
              [this, &pool](std::uint64_t incarnation, const std::vector<KeptItem>& items, TimeNs now,
                            service::Effects& more) {
                pool.sift->restore(incarnation, items, now, pool.pending);
                carry_out(pool, now, more);
              },
          .kept =
              [this, &pool](std::uint64_t token, const Status& status, TimeNs now, service::Effects& more) {
                pool.sift->on_kept(token, status, now, pool.pending);
                carry_out(pool, now, more);
              },
          .read =
              [this, &pool](std::uint64_t token, Result<FramePtr> object, TimeNs now, service::Effects& more) {
                pool.sift->on_read(token, std::move(object), now, pool.pending);
                carry_out(pool, now, more);
              },
          .changed =
              [this, &pool] {
                note_deadline(pool);
                forget_later_ = true;
              }});
  return pool.kept->open(pools_.now(), effects);
}

// A restarted member has lost its pools, unless they were on its disk.
void SiftService::on_members(std::vector<std::string> alive, const std::vector<std::string>& anew, TimeNs now,
                             service::Effects& effects) {
  const std::vector<std::string> before = std::exchange(alive_, std::move(alive));
  for (const auto& [name, pool] : by_name_) {
    Agreement& agreement = pool->agreement;
    Agreement::Asks asks;
    for (const std::string& member : anew) agreement.on_restart(member);
    for (const std::string& member : alive_)  // other agents may have another pool of the name
      if (member != self_ &&
          (!std::ranges::binary_search(before, member) || std::ranges::find(anew, member) != anew.end()))
        agreement.ask(member, asks);
    const Agreement::Outcome outcome = agreement.work(alive_, now, asks);
    after(*pool, outcome, asks, now, effects);
    end_flushes(*pool, before, anew, now, effects);
  }
  writes_.on_members(alive_, anew, now, effects);
  tell_own_parts(now, effects);
  make_awaited(now, effects);
}

// The name with all its settings: it makes the pool again if it was dropped meanwhile.
Result<std::string> SiftService::admit(const std::string& pool, uid_t user, service::Effects& effects) {
  auto made = define(pool, user, effects);
  if (made) {
    OFP_TRY((*made)->sift->may_put());
    return (*made)->text;
  }
  if (made.error().code != Error::would_block) return tl::unexpected(std::move(made).error());
  return await(pool, user, made.error());
}

// A member that takes no rows of the pool can make it.
Status SiftService::make(const std::string& pool, uid_t user, service::Effects& effects) {
  const auto made = define(pool, user, effects);
  if (made) return {};
  if (made.error().code != Error::would_block) return tl::unexpected(made.error());
  OFP_TRY(await(pool, user, made.error()));
  return {};
}

Result<mover::Stored> SiftService::put(const mover::Store::Place& place, service::FramePtr frame, std::uint64_t token,
                                       TimeNs now, service::Effects& effects) {
  const DeferredRequest again = [this, place, frame, token](TimeNs then, service::Effects& more) {
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
  OFP_TRY(pool->agreement.may_put(now));
  if (!pool->is_ready()) {
    pool->deferred.push_back(again);
    return mover::Stored::later;
  }
  const std::uint64_t number = next_++;
  sources_.emplace(number, Source{.kind = Source::Kind::put, .pool = pool, .token = token});
  pool->sift->on_put(number, place.row_key, std::move(frame), now, pool->pending);
  carry_out(*pool, now, effects);
  return mover::Stored::later;
}

// ---- agreement with other members, and requests that waited for it

// Sends the questions of the agreement, and acts on its outcome.
void SiftService::after(Pool& pool, Agreement::Outcome outcome, const Agreement::Asks& asks, TimeNs now,
                        service::Effects& effects) {
  for (const Agreement::Ask& each : asks) ask(pool, each, now, effects);
  note_deadline(pool);
  if (outcome != Agreement::Outcome::none) ++changes_;
  if (outcome == Agreement::Outcome::agreed) {
    if (pool.kept) pool.kept->begin(now);
    serve_deferred(pool, now, effects);
  } else if (outcome == Agreement::Outcome::hopeless) {
    for (const DeferredRequest& serve : std::exchange(pool.deferred, {})) serve(now, effects);  // these fail
  }
}

// A flush without a number says that this definition was agreed on.
void SiftService::ask(Pool& pool, const Agreement::Ask& asked, TimeNs now, service::Effects& effects) {
  effects.push_back(service::AskEffect{
      work(Work::Kind::ask, &pool, 0, asked.member), asked.member,
      asked.tells ? EntryKind::peer_flush : EntryKind::peer_define, deadline_after(now, options_.ask_wait_ns), nullptr,
      0,
      [tells = asked.tells, full = pool.text, user = pool.user](const AskedMemory&, std::vector<std::byte>& payload) {
        if (tells)
          wire::encode(wire::PeerFlush{user, 0, 1, full}, payload);
        else
          wire::encode(wire::PeerDefine{user, full}, payload);
      }});
}

// Serves another member's definition. Answers whether all agreed on it, as far as is known here.
Result<std::uint64_t> SiftService::serve_definition(std::string_view text, uid_t user, TimeNs now,
                                                    service::Effects& effects) {
  const auto known = by_name_.find(name_in(text));
  if (known == by_name_.end()) {
    OFP_ASSIGN(Pool* const pool, define(text, user, effects));
    return pool->agreement.confirm(true, now);
  }
  Pool& mine = *known->second;
  OFP_TRY(may_use(mine, user));
  if (mine.text == text) return mine.agreement.confirm(false, now);
  const Status yields = mine.agreement.yield_to_proposed(text, now);
  note_deadline(mine);
  OFP_TRY(yields);
  OFP_ASSIGN(Pool* const pool, replace(mine, text, user, now, effects));
  pool->agreement.take_as_proposed(now);
  return Agreement::promised;
}

// Replaces a definition that was not agreed on, and so has no objects.
Result<SiftService::Pool*> SiftService::replace(Pool& mine, std::string_view text, uid_t user, TimeNs now,
                                                service::Effects& effects) {
  OFP_ASSIGN(const Settings settings, parse_settings(text));
  if (!has_member(settings, self_))
    return fail(Error::unsupported, "pool \"{}\": this agent, {}, is not one of its members", text, self_);
  log(LogLevel::info, "pool \"{}\" is made as \"{}\"", mine.text, text);
  std::vector<DeferredRequest> deferred = std::exchange(mine.deferred, {});
  std::set<std::string> replaced = std::exchange(mine.replaced, {});
  OFP_ASSIGN(const Settings before, parse_settings(mine.text));
  if (same_but_members(before, settings)) replaced.insert(mine.text);
  drop(mine, now, effects);
  auto made = define(text, user, effects);
  if (!made) {  // there is no memory for it
    for (const DeferredRequest& serve : deferred) serve(now, effects);
    return made;
  }
  (*made)->replaced = std::move(replaced);
  for (DeferredRequest& each : deferred) (*made)->deferred.push_back(std::move(each));
  serve_deferred(**made, now, effects);
  return made;
}

// A member sends other requests for the pool only after all have agreed on it.
Result<SiftService::Pool*> SiftService::define_agreed(std::string_view text, uid_t user, TimeNs now,
                                                      service::Effects& effects) {
  const auto known = by_name_.find(name_in(text));
  const bool other = known != by_name_.end() && known->second->text != text;
  if (other) {
    OFP_TRY(may_use(*known->second, user));
    OFP_TRY(known->second->agreement.yield_to_agreed(text, now));
  }
  OFP_ASSIGN(Pool* const pool, other ? replace(*known->second, text, user, now, effects) : define(text, user, effects));
  after(*pool, pool->agreement.agree(now), {}, now, effects);
  return pool;
}

// ---- requests before the pool is ready

// Members would answer requests to a pool that is not agreed on as if it were.
Result<bool> SiftService::must_wait(Pool& pool, TimeNs now, ChannelNumber channel, const channel::Entry& request,
                                    bool is_member) {
  return must_wait(pool, now,
                   [this, channel, kind = request.kind, ticket = request.ticket, is_member,
                    payload = std::vector<std::byte>(request.payload.begin(), request.payload.end())](
                       TimeNs then, service::Effects& effects) {
                     if (!channels_.contains(channel)) return;
                     channel::Entry again = {};
                     again.kind = kind;
                     again.ticket = ticket;
                     again.payload = payload;
                     serve_or_fail(channel, again, is_member, then, effects);
                   });
}

Result<bool> SiftService::must_wait(Pool& pool, TimeNs now, DeferredRequest serve) {
  if (pool.is_ready()) return false;
  if (!pool.agreement.is_agreed()) OFP_TRY(pool.agreement.may_put(now));
  pool.deferred.push_back(std::move(serve));
  return true;
}

void SiftService::serve_deferred(Pool& pool, TimeNs now, service::Effects& effects) {
  if (pool.deferred.empty() || !pool.is_ready()) return;
  for (const auto& serve : std::exchange(pool.deferred, {})) serve(now, effects);
}

// ---- pools that are found at start

void SiftService::recover(TimeNs now, service::Effects& effects) {
  unread_.find(self_, now);
  unread_.read(now, effects);
}

void SiftService::on_identity(const std::string& own, uid_t user, const Result<Identity>& identity, TimeNs now,
                              service::Effects& effects) {
  const auto made = [&]() -> Status {
    OFP_TRY(identity);
    OFP_ASSIGN(const Settings settings, parse_settings(identity->text));
    if (const std::string name = own_name(settings, identity->text, user); name != own)
      return fail(Error::exists, "the kept objects of pool \"{}\" of user {} are in \"{}\"", identity->text, user,
                  name);
    OFP_ASSIGN(Pool* const pool, define(identity->text, user, effects));
    if (pool->kept == nullptr || pool->kept->own() != own)
      return fail(Error::exists, "another pool \"{}\" exists", identity->text);
    after(*pool, pool->agreement.agree(now), {}, now, effects);  // with its former definition
    return {};
  };
  if (const Status status = made(); !status)
    log(LogLevel::error, "pool \"{}\": its kept objects are not used: {}", own, status.error().message);
  make_awaited(now, effects);
}

// Refuses a pool whose name may belong to kept objects that are still being read: it would replace them.
Status SiftService::may_make(std::string_view text) const {
  if (!unread_.may_have(text)) return {};
  return fail(Error::would_block, "pool \"{}\": agent {} is still reading its kept objects", name_in(text), self_);
}

// ---- pools that wait for members

Result<std::string> SiftService::await(std::string_view text, uid_t user, const Failure& why) {
  const auto known = awaited_.find(name_in(text));
  if (known == awaited_.end()) {
    const auto own = std::ranges::count_if(awaited_, [&](const auto& each) { return each.second.user == user; });
    if (static_cast<std::size_t>(own) >= options_.user_pools_max)
      return fail(Error::too_large,
                  "{} sift pools of user {} wait for members, which is the limit of each user (limits.user_pools_max)",
                  own, user);
    awaited_.emplace(name_in(text), Awaited{std::string(text), user});
    ++changes_;
    log(LogLevel::info, "pool \"{}\" will be made later: {}", text, why.message);
    return std::string(text);
  }
  if (known->second.user != user && user != 0)
    return fail(Error::denied, "pool \"{}\" belongs to user {}, not to user {}", name_in(text), known->second.user,
                user);
  if (text.size() == name_in(text).size() || text == known->second.text) return known->second.text;
  return fail(Error::exists, "pool \"{}\" already waits for members, as \"{}\"", text, known->second.text);
}

void SiftService::make_awaited(TimeNs now, service::Effects& effects) {
  std::vector<std::pair<std::string, uid_t>> all;
  for (const auto& [name, awaited] : awaited_) all.emplace_back(awaited.text, awaited.user);
  for (const auto& [text, user] : all) {
    const auto made = define(text, user, effects);
    if (made || made.error().code == Error::would_block) continue;
    log(LogLevel::error, "{}", made.error().message);
    if (const auto awaited = awaited_.find(name_in(text)); awaited != awaited_.end())
      for (const DeferredRequest& serve : std::exchange(awaited->second.deferred, {})) serve(now, effects);
  }
}

// ---- effects of a Sift

std::uint64_t SiftService::work(Work::Kind kind, Pool* pool, std::uint64_t token, std::string member) {
  const std::uint64_t number = next_++;
  works_.emplace(number, Work{kind, pool, token, std::move(member)});
  return service::token_of(service::ServiceId::sift, number);
}

// Effects may cause others, which are appended and carried out in order.
void SiftService::carry_out(Pool& pool, TimeNs now, service::Effects& effects) {
  if (pool.carrying) return;  // called from within: the outer call carries it out
  pool.carrying = true;
  for (std::size_t i = 0; i < pool.pending.size(); ++i) {
    Effect effect = std::move(pool.pending[i]);
    if (auto* pull = std::get_if<AdmitEffect>(&effect)) {
      if (auto ended = pulls_.begin(pull->token, now, effects))
        pool.sift->on_pulled(ended->number, std::move(ended->frame), now, pool.pending);
    } else if (auto* answer = std::get_if<StoredEffect>(&effect)) {
      answered(pool, *answer, now, effects);
    } else if (auto* offered = std::get_if<PublishEffect>(&effect)) {
      publish(pool, *offered, now, effects);
    } else if (auto* job = std::get_if<JobEffect>(&effect)) {
      effects.push_back(service::JobEffect{work(Work::Kind::job, &pool, job->token), std::move(job->run)});
    } else if (auto* over = std::get_if<FlushedEffect>(&effect)) {
      const auto node = sources_.extract(over->token);
      const Source& source = node.mapped();
      if (source.token != 0)
        flushed(pool, source.token, over->status ? Result<std::uint64_t>(0) : tl::unexpected(over->status.error()), now,
                effects);
      else if (over->status)
        effects.push_back(service::ReplyEffect{source.channel, source.ticket, wire::Done{0}});
      else
        effects.push_back(service::FailEffect{source.channel, source.ticket, wire::any_reply, over->status.error()});
    } else if (auto* kept = std::get_if<KeepEffect>(&effect)) {
      if (kept->object != nullptr)
        pool.kept->keep(std::move(*kept), now, effects);
      else
        pool.sift->on_kept(kept->token, fail(Error::no_memory, "no memory for {}", kept->name), now, pool.pending);
    } else if (auto* forgotten = std::get_if<ForgetEffect>(&effect)) {
      pool.kept->forget(std::move(forgotten->name), now, effects);
    } else if (auto* wanted = std::get_if<ReadEffect>(&effect)) {
      pool.kept->read(*wanted, now, effects);
    }
  }
  pool.pending.clear();
  pool.carrying = false;
  note_deadline(pool);
  serve_deferred(pool, now, effects);
}

void SiftService::answered(Pool& pool, const StoredEffect& answer, TimeNs now, service::Effects& effects) {
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
      pulls_.abandon(answer.token);
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

void SiftService::pulled(PiecePulls::Ended ended, TimeNs now, service::Effects& effects) {
  const auto source = sources_.find(ended.number);
  if (source == sources_.end()) return;
  Pool& pool = *source->second.pool;
  pool.sift->on_pulled(ended.number, std::move(ended.frame), now, pool.pending);
  carry_out(pool, now, effects);
}

void SiftService::pull_waiting(TimeNs now, service::Effects& effects) {
  for (std::size_t left = pulls_.waiting(); left > 0 && pulls_.waiting() > 0; --left)
    if (auto ended = pulls_.begin_waiting(now, effects)) pulled(std::move(*ended), now, effects);
}

// ---- completions

void SiftService::on_job(std::uint64_t token, Status status, TimeNs now, service::Effects& effects) {
  const std::uint64_t number = service::number_of(token);
  if (reads_.has(number)) return reads_.on_job(number, status, now, effects);
  if (parts_.has(number)) {
    parts_.on_job(number, std::move(status), now, effects);
    return tell_own_parts(now, effects);
  }
  if (pulls_.is_under_way(number)) {
    if (auto ended = pulls_.end(number, status)) pulled(std::move(*ended), now, effects);
  } else if (const auto node = works_.extract(number)) {
    const Work& done = node.mapped();
    done.pool->sift->on_job(done.token, status, now, done.pool->pending);
    carry_out(*done.pool, now, effects);
  }
  forget_dropped();
}

void SiftService::on_answer(std::uint64_t token, Result<service::Answer> answer, TimeNs now,
                            service::Effects& effects) {
  if (const std::uint64_t number = service::number_of(token); writes_.has(number)) {
    wire::Written written{};
    writes_.on_answer(number, answer.and_then([&](const service::Answer& said) -> Result<wire::Written> {
      OFP_TRY(wire::decode(said.payload, written));
      return written;
    }),
                      now, effects);
    return tell_own_parts(now, effects);
  }
  const auto node = works_.extract(service::number_of(token));
  if (!node) return;
  const Work& done = node.mapped();
  Result<std::uint64_t> said = answer.map([](const auto&) { return std::uint64_t{0}; });
  if (answer && done.kind != Work::Kind::publish) {
    wire::Done message{};
    said = wire::decode(answer->payload, message).map([&] { return message.value; });
  }
  switch (done.kind) {
    case Work::Kind::ask:
      if (const auto known = by_name_.find(done.pool->name);
          known != by_name_.end() && known->second.get() == done.pool) {
        Agreement::Asks asks;
        const Agreement::Outcome outcome = done.pool->agreement.on_answer(done.member, said, alive_, now, asks);
        after(*done.pool, outcome, asks, now, effects);
      }
      break;
    case Work::Kind::flush:
      flushed(*done.pool, done.token, said, now, effects);
      break;
    case Work::Kind::publish:
    case Work::Kind::job:
      done.pool->sift->on_published(done.token, answer ? Status{} : tl::unexpected(answer.error()), now,
                                    done.pool->pending);
      carry_out(*done.pool, now, effects);
      break;
  }
  forget_dropped();
}

void SiftService::on_time(TimeNs now, service::Effects& effects) {
  pull_waiting(now, effects);
  unread_.read(now, effects);
  parts_.on_time(now, effects);
  writes_.on_time(now, effects);
  tell_own_parts(now, effects);
  for (const std::string& name : times_.take(now)) {
    const auto known = by_name_.find(name);
    if (known == by_name_.end()) continue;
    Pool& pool = *known->second;
    if (pool.agreement.next_deadline() <= now) {
      Agreement::Asks asks;
      const Agreement::Outcome outcome = pool.agreement.work(alive_, now, asks);
      after(pool, outcome, asks, now, effects);
    }
    if (pool.kept && pool.kept->next_deadline() <= now) pool.kept->work(now, effects);
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
  return std::min({times_.first(), pulls_.next_deadline(), unread_.next_deadline(), parts_.next_deadline(),
                   writes_.next_deadline()});
}

// A dropped pool, or one that is being made, has none.
void SiftService::note_deadline(const Pool& pool) {
  const auto known = by_name_.find(pool.name);
  if (known != by_name_.end() && known->second.get() == &pool) times_.set(pool.name, pool.next_deadline());
}

void SiftService::on_closed(ChannelNumber channel, bool /*usual*/, TimeNs now, service::Effects& effects) {
  channels_.erase(channel);
  std::erase_if(deferred_parts_, [&](const auto& each) { return each.first == channel; });
  parts_.on_closed(channel, now, effects);
  writes_.on_closed(channel, now, effects);
  tell_own_parts(now, effects);
  std::vector<std::pair<Pool*, std::uint64_t>> gone;
  for (const auto& [token, source] : sources_)
    if (source.kind == Source::Kind::offer && source.channel == channel) gone.emplace_back(source.pool, token);
  for (const auto& [pool, token] : gone) {
    pulls_.forget(token);
    sources_.erase(token);
    pool->sift->on_offer_gone(token, now, pool->pending);
    carry_out(*pool, now, effects);
  }
  forget_dropped();
}

}  // namespace offpath::sift
