#include "sift/sift_service.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "wire/messages/message_kinds.h"
#include "wire/messages/peer_messages.h"
#include "wire/messages/pool_messages.h"
#include "wire/messages/replies.h"
#include "wire/messages/sift_messages.h"

namespace offpath::sift {

using service::AskedMemory;
using wire::EntryKind;

SiftService::SiftService(const SiftServiceOptions& options, std::shared_ptr<service::BufferCache> buffers,
                         std::function<bool(std::uint64_t)> room, pool::Pools& pools)
    : context_(options, std::move(buffers), pools),
      known_(context_, under_way_),
      pool_effects_(
          context_, under_way_, std::move(room),
          {.flushed =
               [this](SiftPool& pool, std::uint64_t id, const Status& status, TimeNs now, service::Effects& effects) {
                 flushes_.on_answer(pool, id, status ? Result<std::uint64_t>(0) : tl::unexpected(status.error()), now,
                                    effects);
               },
           .carried_out =
               [this](SiftPool& pool, TimeNs now, service::Effects& effects) {
                 known_.note_deadline(pool);
                 PoolAgreements::serve_deferred(pool, now, effects);
               }}),
      making_(context_, known_, pool_effects_,
              [this](SiftPool& pool, TimeNs now, service::Effects& effects) { agreements_.agree(pool, now, effects); }),
      agreements_(context_, known_, under_way_, making_),
      flushes_(context_, under_way_, pool_effects_),
      tracks_(context_, under_way_),
      writes_(context_, known_, under_way_, making_, agreements_) {}

void SiftService::set_self(std::string name, std::uint64_t process) {
  context_.self = std::move(name);
  context_.process = process;
  context_.alive = {context_.self};
  writes_.set_self(context_.self);
}

// ---- pools

std::vector<SiftService::PoolStatus> SiftService::pools() const {
  std::vector<PoolStatus> all;
  for (const auto& [name, pool] : known_.all()) {
    PoolStatus status{pool->name,
                      pool->text,
                      pool->user,
                      pool->sift->track_memory().bytes(),
                      pool->sift->track_memory().disk_bytes(),
                      {},
                      pool->settings.kept(),
                      pool->sift->is_restored(),
                      pool->agreement.is_agreed(),
                      pool->agreement.rival()};
    for (std::uint32_t stage = 1; stage <= pool->settings.track_stage(); ++stage)
      status.stages.push_back(pool->sift->counters(stage));
    std::tie(status.stages.back().track_runs, status.stages.back().damaged_runs) =
        pool->sift->track_memory().count_runs();
    all.push_back(std::move(status));
  }
  return all;
}

std::vector<SiftService::Known> SiftService::known() const {
  std::vector<Known> all;
  for (const auto& [name, pool] : known_.all())
    all.push_back({pool->text.size() <= wire::pool_bytes_max ? pool->text : pool->reference, pool->user,
                   !pool->agreement.rival().empty() ? "rival"
                   : pool->agreement.is_agreed()    ? "ready"
                                                    : "agrees"});
  for (const auto& [name, awaited] : making_.awaited().all())
    if (known_.named(name) == nullptr) all.push_back({awaited.text, awaited.user, "waits"});
  return all;
}

Result<SiftService::Members> SiftService::members_of(std::string_view text) {
  OFP_ASSIGN(const SiftPool* const pool, known_.find(text));
  if (pool == nullptr) return fail(Error::not_found, "there is no pool \"{}\"", text.substr(0, text.find('?')));
  const std::span<const std::string> members = pool->sift->geometry().members();
  return Members{pool->reference, {members.begin(), members.end()}, pool->settings.key};
}

Result<SiftService::TrackSource> SiftService::track_source(std::string_view text, uid_t user,
                                                           service::Effects& effects) {
  const bool with_options = text.find('?') != std::string_view::npos;
  OFP_ASSIGN(const SiftPool* const pool,
             with_options ? making_.define(text, user, effects) : making_.existing(text, user));
  const Geometry& geometry = pool->sift->geometry();
  const std::uint32_t stage = pool->settings.track_stage();
  std::vector<std::uint32_t> elements;
  for (std::uint32_t element = 0; element < pool->settings.elements(stage); ++element)
    if (geometry.owner_name({stage, element}, 0) == context_.self) elements.push_back(element);
  const std::size_t members = geometry.members().size();
  return TrackSource{pool->text, members, pool->sift->tracks(elements), {context_.buffers, pool->user}};
}

Result<mover::Stored> SiftService::put(const mover::Store::Place& place, service::FramePtr frame, std::uint64_t token,
                                       TimeNs now, service::Effects& effects) {
  const DeferredRequests::Serve again = [this, place, frame, token](TimeNs then, service::Effects& more) {
    if (auto stored = put(place, frame, token, then, more); !stored)
      more.push_back(service::StoredEffect{token, tl::unexpected(stored.error())});
  };
  OFP_ASSIGN(SiftPool* const pool, making_.make_for(place.pool, place.user, frame.get(), again, effects));
  if (pool == nullptr) return mover::Stored::later;
  OFP_TRY(pool->agreement.may_put(now));
  if (pool->is_ready())
    pool_effects_.put(*pool, token, place.row_key, std::move(frame), now, effects);
  else
    pool->deferred.add(again);
  return mover::Stored::later;
}

// ---- requests

void SiftService::on_request(const service::Request& asked, TimeNs now, service::Effects& effects) {
  serve_or_fail(asked.channel, asked.entry, asked.is_member, now, effects);
}

void SiftService::serve_or_fail(ChannelNumber channel, const channel::Entry& request, bool is_member, TimeNs now,
                                service::Effects& effects) {
  if (Status served = serve(channel, request, is_member, now, effects); !served)
    effects.push_back(service::FailEffect{channel, request.ticket, wire::any_reply, std::move(served).error()});
}

Status SiftService::serve(ChannelNumber channel, const channel::Entry& request, bool is_member, TimeNs now,
                          service::Effects& effects) {
  switch (static_cast<EntryKind>(request.kind)) {
    case EntryKind::sift_flush:
    case EntryKind::sift_tracks:
    case EntryKind::sift_info:
    case EntryKind::sift_write:
    case EntryKind::sift_written:
    case EntryKind::pool_drop:
      return serve_program(channel, request, now, effects);
    default:
      if (is_member) return serve_member(channel, request, now, effects);
      return fail(Error::denied, "members of a group belong to one user; this channel belongs to another");
  }
}

Status SiftService::serve_program(ChannelNumber channel, const channel::Entry& request, TimeNs now,
                                  service::Effects& effects) {
  const uid_t user = context_.channels.at(channel);
  switch (static_cast<EntryKind>(request.kind)) {
    case EntryKind::sift_flush: {
      wire::SiftFlush flush{};
      OFP_TRY(wire::decode(request.payload, flush));
      OFP_ASSIGN(SiftPool* const pool, making_.existing(flush.pool, user));
      OFP_ASSIGN(const bool waits, defer(*pool, now, channel, request, false));
      if (waits) return {};
      return flushes_.serve(*pool, channel, request.ticket, flush.wait_ns, now, effects);
    }
    case EntryKind::sift_tracks: {
      wire::SiftTracks asked{};
      OFP_TRY(wire::decode(request.payload, asked));
      OFP_ASSIGN(SiftPool* const pool, making_.existing(asked.pool, user));
      OFP_ASSIGN(const bool waits, defer(*pool, now, channel, request, false));
      if (waits) return {};
      return tracks_.serve(*pool, channel, request.ticket, std::move(asked), now, effects);
    }
    case EntryKind::sift_write: {
      wire::SiftWrite asked{};
      OFP_TRY(wire::decode(request.payload, asked));
      return writes_.serve(channel, request.ticket, asked, now, effects);
    }
    case EntryKind::sift_written: {
      wire::SiftWritten asked{};
      OFP_TRY(wire::decode(request.payload, asked));
      return writes_.serve_written(channel, request.ticket, asked, now, effects);
    }
    case EntryKind::sift_info:
      return serve_info(channel, request, effects);
    default:
      return serve_drop(channel, request, false, now, effects);
  }
}

Status SiftService::serve_member(ChannelNumber channel, const channel::Entry& request, TimeNs now,
                                 service::Effects& effects) {
  switch (static_cast<EntryKind>(request.kind)) {
    case EntryKind::peer_piece:
      return serve_piece(channel, request, now, effects);
    case EntryKind::peer_flush: {
      wire::PeerFlush flush{};
      OFP_TRY(wire::decode(request.payload, flush));
      OFP_ASSIGN(SiftPool* const pool,
                 agreements_.define_agreed(flush.pool, static_cast<uid_t>(flush.user), now, effects));
      OFP_ASSIGN(const bool waits, defer(*pool, now, channel, request, true));
      if (waits) return {};
      return flushes_.serve_member(*pool, channel, request.ticket, flush, now, effects);
    }
    case EntryKind::peer_tracks: {
      wire::PeerTracks asked{};
      OFP_TRY(wire::decode(request.payload, asked));
      OFP_ASSIGN(SiftPool* const pool,
                 agreements_.define_agreed(asked.pool, static_cast<uid_t>(asked.user), now, effects));
      OFP_ASSIGN(const bool waits, defer(*pool, now, channel, request, true));
      if (waits) return {};
      return tracks_.serve_member(*pool, channel, request.ticket, std::move(asked), now, effects);
    }
    case EntryKind::peer_write: {
      wire::PeerWrite asked{};
      OFP_TRY(wire::decode(request.payload, asked));
      return writes_.serve_member(channel, request.ticket, asked, now, effects);
    }
    case EntryKind::peer_define: {
      wire::PeerDefine definition{};
      OFP_TRY(wire::decode(request.payload, definition));
      OFP_ASSIGN(const std::uint64_t agreed, agreements_.serve_define(definition, now, effects));
      effects.push_back(service::ReplyEffect{channel, request.ticket, wire::Done{agreed}});
      return {};
    }
    case EntryKind::peer_drop:
      return serve_drop(channel, request, true, now, effects);
    default:
      OFP_ASSERT(!"a request of another service");
  }
}

Result<bool> SiftService::defer(SiftPool& pool, TimeNs now, ChannelNumber channel, const channel::Entry& request,
                                bool is_member) {
  if (pool.is_ready()) return false;
  return pool.defer(
      [this, channel, kind = request.kind, ticket = request.ticket, is_member,
       payload = std::vector<std::byte>(request.payload.begin(), request.payload.end())](TimeNs then,
                                                                                         service::Effects& effects) {
        if (!context_.channels.contains(channel)) return;
        channel::Entry again = {};
        again.kind = kind;
        again.ticket = ticket;
        again.payload = payload;
        serve_or_fail(channel, again, is_member, then, effects);
      },
      now);
}

Status SiftService::serve_piece(ChannelNumber channel, const channel::Entry& request, TimeNs now,
                                service::Effects& effects) {
  wire::PeerPiece piece{};
  OFP_TRY(wire::decode(request.payload, piece));
  OFP_ASSIGN(SiftPool* const pool, agreements_.define_agreed(piece.pool, static_cast<uid_t>(piece.user), now, effects));
  OFP_ASSIGN(PieceHeader header, decode_piece_header(piece.header));
  if (!pool->sift->is_restored()) {
    if (piece.offer != 0) (void)context_.pools.take_offer(channel, piece.offer);
    return fail(Error::would_block, "member {} is still restoring its objects of pool \"{}\"", context_.self,
                pool->name);
  }
  pool_effects_.offer(*pool, channel, request.ticket, piece, std::move(header), now, effects);
  return {};
}

Status SiftService::serve_info(ChannelNumber channel, const channel::Entry& request, service::Effects& effects) {
  wire::SiftInfo info{};
  OFP_TRY(wire::decode(request.payload, info));
  const uid_t user = context_.channels.at(channel);
  // With options it makes the pool, which may wait for members.
  const bool with_options = info.pool.size() > name_in(info.pool).size();
  if (with_options) OFP_TRY(making_.make(std::string(info.pool), user, effects));
  std::uint64_t elements = 0;
  if (!with_options || !making_.awaited().has(info.pool)) {
    OFP_ASSIGN(const SiftPool* const pool, making_.existing(info.pool, user));
    elements = pool->settings.elements(pool->settings.track_stage());
  }
  effects.push_back(service::ReplyEffect{channel, request.ticket, wire::Done{elements}});
  return {};
}

// The pool as a whole, on all its members: tracks cannot be dropped one by one.
Status SiftService::serve_drop(ChannelNumber channel, const channel::Entry& request, bool of_member, TimeNs now,
                               service::Effects& effects) {
  wire::PoolDrop asked{};
  wire::PeerDrop peer{};
  OFP_TRY(of_member ? wire::decode(request.payload, peer) : wire::decode(request.payload, asked));
  const std::string_view text = of_member ? peer.pool : asked.pool;
  const std::string_view row = of_member ? peer.row_glob : asked.row_glob,
                         column = of_member ? peer.column_glob : asked.column_glob;
  if ((row != "*" && !row.empty()) || (column != "*" && !column.empty()))
    return fail(Error::unsupported, "pool \"{}\": tracks are dropped as a whole, not by the patterns ({}, {})", text,
                brief(row), brief(column));
  const uid_t user = of_member ? static_cast<uid_t>(peer.user) : context_.channels.at(channel);
  OFP_ASSIGN(SiftPool* const pool, making_.existing(text, user));
  if (!of_member) {
    for (const std::string& member : pool->sift->geometry().members()) {
      if (member == context_.self) continue;
      effects.push_back(service::AskEffect{service::token_of(service::ServiceId::sift, under_way_.next_number()),
                                           member, EntryKind::peer_drop,
                                           deadline_after(now, context_.options.ask_wait_ns), nullptr, 0,
                                           [pool_user = std::uint64_t{pool->user}, reference = pool->reference](
                                               const AskedMemory&, std::vector<std::byte>& payload) {
                                             wire::encode(wire::PeerDrop{pool_user, reference, "*", "*"}, payload);
                                           }});
    }
  }
  making_.drop(*pool, now, effects);
  effects.push_back(service::ReplyEffect{channel, request.ticket, wire::Done{1}});
  return {};
}

// ---- events

void SiftService::on_members(std::vector<std::string> alive, const std::vector<std::string>& anew, TimeNs now,
                             service::Effects& effects) {
  const std::vector<std::string> before = std::exchange(context_.alive, std::move(alive));
  for (const auto& [name, pool] : known_.all()) {
    agreements_.on_members(*pool, before, anew, now, effects);
    flushes_.on_members(*pool, before, anew, now, effects);
  }
  writes_.on_members(anew, now, effects);
  making_.make_awaited(now, effects);
}

void SiftService::on_job(std::uint64_t token, Status status, TimeNs now, service::Effects& effects) {
  const std::uint64_t number = service::number_of(token);
  if (tracks_.has(number)) return tracks_.on_job(number, status, now, effects);
  if (writes_.has_job(number)) return writes_.on_job(number, std::move(status), now, effects);
  if (!pool_effects_.on_pull_job(number, status, now, effects))
    if (const auto work = under_way_.take_work(number)) pool_effects_.on_job(*work, status, now, effects);
  known_.forget_dropped();
}

void SiftService::on_answer(std::uint64_t token, Result<service::Answer> answer, TimeNs now,
                            service::Effects& effects) {
  const std::uint64_t number = service::number_of(token);
  if (writes_.has_ask(number)) return writes_.on_answer(number, answer, now, effects);
  const auto work = under_way_.take_work(number);
  if (!work) return;
  using Kind = UnderWay::Work::Kind;
  Result<std::uint64_t> said = answer.map([](const auto&) { return std::uint64_t{0}; });
  if (answer && work->kind != Kind::publish) {
    wire::Done message{};
    said = wire::decode(answer->payload, message).map([&] { return message.value; });
  }
  switch (work->kind) {
    case Kind::ask:
      agreements_.on_answer(*work, said, now, effects);
      break;
    case Kind::flush:
      flushes_.on_answer(*work->pool, work->token, said, now, effects);
      break;
    case Kind::publish:
    case Kind::job:
      pool_effects_.on_published(*work, answer ? Status{} : tl::unexpected(answer.error()), now, effects);
      break;
  }
  known_.forget_dropped();
}

void SiftService::on_time(TimeNs now, service::Effects& effects) {
  pool_effects_.pull_waiting(now, effects);
  making_.read(now, effects);
  writes_.on_time(now, effects);
  for (const std::string& name : known_.take_due(now)) {
    SiftPool* const pool = known_.named(name);
    if (pool == nullptr) continue;
    if (pool->agreement.next_deadline() <= now) agreements_.work(*pool, now, effects);
    if (pool->kept && pool->kept->next_deadline() <= now) pool->kept->work(now, effects);
    if (pool->sift->next_deadline() <= now) {
      pool->sift->on_time(now, pool->pending);
      pool_effects_.carry_out(*pool, now, effects);
    }
    known_.note_deadline(*pool);
  }
  known_.on_time_done();
}

TimeNs SiftService::next_deadline() const noexcept {
  return std::min(
      {known_.next_deadline(), pool_effects_.next_deadline(), making_.next_deadline(), writes_.next_deadline()});
}

void SiftService::on_closed(ChannelNumber channel, bool /*usual*/, TimeNs now, service::Effects& effects) {
  context_.channels.erase(channel);
  writes_.on_closed(channel, now, effects);
  pool_effects_.on_closed(channel, now, effects);
  known_.forget_dropped();
}

}  // namespace offpath::sift
