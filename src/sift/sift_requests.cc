// Requests of programs and members to sift pools.
#include <algorithm>
#include <set>
#include <utility>

#include "sift/sift_service.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/peer_messages.h"
#include "wire/messages/pool_messages.h"
#include "wire/messages/replies.h"
#include "wire/messages/sift_messages.h"

namespace offpath::sift {

using service::AskedMemory;
using wire::EntryKind;

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
  const auto kind = static_cast<EntryKind>(request.kind);
  const bool of_member = kind != EntryKind::sift_flush && kind != EntryKind::sift_tracks &&
                         kind != EntryKind::sift_info && kind != EntryKind::sift_write &&
                         kind != EntryKind::sift_written && kind != EntryKind::pool_drop;
  if (of_member && !is_member)
    return fail(Error::denied, "members of a group belong to one user; this channel belongs to another");
  switch (kind) {
    case EntryKind::peer_piece:
      return serve_piece(channel, request, now, effects);
    case EntryKind::peer_flush:
      return serve_peer_flush(channel, request, now, effects);
    case EntryKind::peer_tracks:
      return serve_peer_tracks(channel, request, now, effects);
    case EntryKind::sift_flush:
      return serve_flush(channel, request, now, effects);
    case EntryKind::sift_tracks:
      return serve_tracks(channel, request, now, effects);
    case EntryKind::sift_write:
      return serve_write(channel, request, now, effects);
    case EntryKind::sift_written: {
      wire::SiftWritten asked{};
      OFP_TRY(wire::decode(request.payload, asked));
      OFP_TRY(writes_.serve(channel, request.ticket, asked, now, effects));
      tell_own_parts(now, effects);
      return {};
    }
    case EntryKind::peer_write:
      return serve_peer_write(channel, request, now, effects);
    case EntryKind::pool_drop:
      return serve_drop(channel, request, false, now, effects);
    case EntryKind::peer_drop:
      return serve_drop(channel, request, true, now, effects);
    case EntryKind::peer_define: {
      wire::PeerDefine definition{};
      OFP_TRY(wire::decode(request.payload, definition));
      OFP_ASSIGN(const std::uint64_t agreed,
                 serve_definition(definition.pool, static_cast<uid_t>(definition.user), now, effects));
      effects.push_back(service::ReplyEffect{channel, request.ticket, wire::Done{agreed}});
      return {};
    }
    case EntryKind::sift_info: {
      wire::SiftInfo info{};
      OFP_TRY(wire::decode(request.payload, info));
      const uid_t user = channels_.at(channel);
      // With options it makes the pool, which may wait for members.
      if (info.pool.size() > name_in(info.pool).size()) OFP_TRY(make(std::string(info.pool), user, effects));
      if (awaited_.contains(name_in(info.pool)) && info.pool.size() > name_in(info.pool).size()) {
        effects.push_back(service::ReplyEffect{channel, request.ticket, wire::Done{0}});
        return {};
      }
      OFP_ASSIGN(const Pool* const pool, existing(info.pool, user));
      effects.push_back(service::ReplyEffect{channel, request.ticket,
                                             wire::Done{pool->settings.elements(pool->settings.track_stage())}});
      return {};
    }
    default:
      OFP_ASSERT(!"a request of another service");
  }
}

Status SiftService::serve_piece(ChannelNumber channel, const channel::Entry& request, TimeNs now,
                                service::Effects& effects) {
  wire::PeerPiece piece{};
  OFP_TRY(wire::decode(request.payload, piece));
  OFP_ASSIGN(Pool* const pool, define_agreed(piece.pool, static_cast<uid_t>(piece.user), now, effects));
  OFP_ASSIGN(PieceHeader header, decode_piece_header(piece.header));
  if (!pool->sift->is_restored()) {
    if (piece.offer != 0) (void)pools_.take_offer(channel, piece.offer);
    return fail(Error::would_block, "member {} is still restoring its objects of pool \"{}\"", self_, pool->name);
  }
  const std::uint64_t number = next_++;
  const std::uint64_t bytes = piece.object.length;
  sources_.emplace(number,
                   Source{.kind = Source::Kind::offer, .pool = pool, .channel = channel, .ticket = request.ticket});
  pulls_.add(number, {channel, piece.offer, piece.object, bytes, pool->user, deadline_after(now, second_ns)});
  pool->sift->on_offer(number, std::move(header), bytes, nullptr, now, pool->pending);
  carry_out(*pool, now, effects);
  return {};
}

// ---- flush

// Others would wait for the marks of one that is away, for as long as the program does.
Status SiftService::all_live(const Pool& pool) const {
  for (const std::string& member : pool.sift->geometry().members())
    if (!std::ranges::binary_search(alive_, member))
      return fail(Error::peer_lost, "pool \"{}\": member {} is away, and a flush is of all members", pool.name, member);
  return {};
}

Status SiftService::serve_flush(ChannelNumber channel, const channel::Entry& request, TimeNs now,
                                service::Effects& effects) {
  wire::SiftFlush flush{};
  OFP_TRY(wire::decode(request.payload, flush));
  OFP_ASSIGN(Pool* const pool, existing(flush.pool, channels_.at(channel)));
  OFP_ASSIGN(const bool waits, must_wait(*pool, now, channel, request, false));
  if (waits) return {};
  OFP_TRY(all_live(*pool));
  const std::uint64_t id = next_++;
  flush_all(*pool, id, pool->flushes.begin(id, channel, request.ticket, deadline_after(now, flush.wait_ns)), now,
            effects);
  return {};
}

void SiftService::flush_all(Pool& pool, std::uint64_t id, FlushRounds::Round round, TimeNs now,
                            service::Effects& effects) {
  const std::int64_t wait_ns = std::max<TimeNs>(round.deadline - now, 1);
  for (const std::string& member : pool.sift->geometry().members()) {
    if (member == self_) continue;
    effects.push_back(service::AskEffect{work(Work::Kind::flush, &pool, id), member, EntryKind::peer_flush,
                                         deadline_after(round.deadline, options_.ask_wait_ns), nullptr, 0,
                                         [number = round.number, wait_ns, user = std::uint64_t{pool.user},
                                          text = pool.text](const AskedMemory&, std::vector<std::byte>& payload) {
                                           wire::encode(wire::PeerFlush{user, number, wait_ns, text}, payload);
                                         }});
  }
  const std::uint64_t token = next_++;
  sources_.emplace(token, Source{.kind = Source::Kind::flush, .pool = &pool, .token = id});
  pool.sift->on_flush(token, round.number, round.deadline, now, pool.pending);
  carry_out(pool, now, effects);
}

Status SiftService::serve_peer_flush(ChannelNumber channel, const channel::Entry& request, TimeNs now,
                                     service::Effects& effects) {
  wire::PeerFlush flush{};
  OFP_TRY(wire::decode(request.payload, flush));
  OFP_ASSIGN(Pool* const pool, define_agreed(flush.pool, static_cast<uid_t>(flush.user), now, effects));
  OFP_ASSIGN(const bool waits, must_wait(*pool, now, channel, request, true));
  if (waits) return {};
  // Rows that this flush has to cover may have been put after a later flush began.
  if (const auto newest = pool->flushes.begin_of_member(flush.number)) {
    effects.push_back(service::ReplyEffect{channel, request.ticket, wire::Done{*newest}});
    return {};
  }
  OFP_TRY(all_live(*pool));
  const std::uint64_t token = next_++;
  sources_.emplace(token,
                   Source{.kind = Source::Kind::flush, .pool = pool, .channel = channel, .ticket = request.ticket});
  pool->sift->on_flush(token, flush.number, deadline_after(now, flush.wait_ns), now, pool->pending);
  carry_out(*pool, now, effects);
  return {};
}

void SiftService::flushed(Pool& pool, std::uint64_t id, const Result<std::uint64_t>& newer, TimeNs now,
                          service::Effects& effects) {
  const FlushRounds::Outcome outcome = pool.flushes.on_answer(id, newer, now);
  if (const auto* again = std::get_if<FlushRounds::Round>(&outcome)) flush_all(pool, id, *again, now, effects);
  if (const auto* over = std::get_if<FlushRounds::Over>(&outcome)) tell_flushed(*over, effects);
}

void SiftService::tell_flushed(const FlushRounds::Over& over, service::Effects& effects) {
  if (over.status)
    effects.push_back(service::ReplyEffect{over.channel, over.ticket, wire::Done{0}});
  else
    effects.push_back(service::FailEffect{over.channel, over.ticket, wire::any_reply, over.status.error()});
}

// Of programs, and this agent's parts of those of other members, if a member of the pool was lost: it may have answered
// already, and owe marks to others, which wait for these.
void SiftService::end_flushes(Pool& pool, std::span<const std::string> before, std::span<const std::string> anew,
                              TimeNs now, service::Effects& effects) {
  const auto is_anew = [&](const std::string& member) { return std::ranges::find(anew, member) != anew.end(); };
  const auto members = pool.sift->geometry().members();
  const auto lost = std::ranges::find_if(members, [&](const std::string& member) {
    return is_anew(member) ||
           (std::ranges::binary_search(before, member) && !std::ranges::binary_search(alive_, member));
  });
  if (lost == members.end()) return;
  const Failure why{Error::peer_lost, fmt::format("pool \"{}\": member {} {} during a flush", pool.name, *lost,
                                                  is_anew(*lost) ? "was started anew" : "was lost")};
  for (const FlushRounds::Over& over : pool.flushes.end_all(why)) tell_flushed(over, effects);
  pool.sift->end_flushes(why, pool.pending);
  carry_out(pool, now, effects);
}

// ---- drop

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
  OFP_ASSIGN(Pool* const pool, existing(text, of_member ? static_cast<uid_t>(peer.user) : channels_.at(channel)));
  if (!of_member) {
    for (const std::string& member : pool->sift->geometry().members()) {
      if (member == self_) continue;
      effects.push_back(service::AskEffect{
          service::token_of(service::ServiceId::sift, next_++), member, EntryKind::peer_drop,
          deadline_after(now, options_.ask_wait_ns), nullptr, 0,
          [user = std::uint64_t{pool->user}, full = pool->text](const AskedMemory&, std::vector<std::byte>& payload) {
            wire::encode(wire::PeerDrop{user, full, "*", "*"}, payload);
          }});
    }
  }
  drop(*pool, now, effects);
  effects.push_back(service::ReplyEffect{channel, request.ticket, wire::Done{1}});
  return {};
}

void SiftService::drop(Pool& pool, TimeNs now, service::Effects& effects) {
  pool.sift->drop(pool.pending);
  carry_out(pool, now, effects);
  if (pool.kept) pool.kept->drop(now, effects);
  times_.erase(pool.name);
  auto node = by_name_.extract(pool.name);
  ++changes_;
  dropped_.push_back(std::move(node.mapped()));
  for (const DeferredRequest& serve : std::exchange(pool.deferred, {})) serve(now, effects);
  forget_dropped();
}

void SiftService::forget_dropped() {
  std::erase_if(dropped_, [this](const std::unique_ptr<Pool>& pool) {
    const auto means_it = [&](const auto& each) { return each.second.pool == pool.get(); };
    return pool->is_idle() && std::ranges::none_of(works_, means_it) && std::ranges::none_of(sources_, means_it);
  });
}

// ---- tracks

// Fails unless all of them are in one element.
Result<std::uint32_t> SiftService::element_of(const Pool& pool, std::span<const std::uint64_t> identifiers) {
  if (identifiers.empty()) return fail(Error::invalid, "pool \"{}\": no identifiers were named", pool.name);
  const Geometry& geometry = pool.sift->geometry();
  const std::uint32_t element = geometry.track_element(identifiers.front()).index;
  for (const std::uint64_t identifier : identifiers) {
    const std::uint32_t other = geometry.track_element(identifier).index;
    if (other != element)
      return fail(Error::invalid,
                  "identifiers {} and {} are in elements {} and {} of pool \"{}\": request them one by one",
                  identifiers.front(), identifier, element, other, pool.name);
  }
  return element;
}

Status SiftService::serve_tracks(ChannelNumber channel, const channel::Entry& request, TimeNs now,
                                 service::Effects& effects) {
  wire::SiftTracks asked{};
  OFP_TRY(wire::decode(request.payload, asked));
  OFP_ASSIGN(Pool* const pool, existing(asked.pool, channels_.at(channel)));
  OFP_ASSIGN(const bool waits, must_wait(*pool, now, channel, request, false));
  if (waits) return {};
  if (!asked.all) {
    OFP_ASSIGN(asked.element, element_of(*pool, asked.identifiers));
  }
  const std::uint32_t elements = pool->settings.elements(pool->settings.track_stage());
  if (asked.element >= elements)
    return fail(Error::invalid, "element {} of a pool of {} elements", asked.element, elements);
  pool::FrameTable::Get get{
      .channel = channel, .ticket = request.ticket, .user = channels_.at(channel), .pool = pool->name, .keys = {}};
  const std::string& owner = pool->sift->geometry().owner_name({pool->settings.track_stage(), asked.element}, 0);
  if (owner == self_)
    return read_tracks(*pool, std::move(get),
                       {asked.element, asked.all, asked.first_step, asked.last_step, std::move(asked.identifiers)}, now,
                       effects);
  pools_.fetch(
      std::move(get), owner, EntryKind::peer_tracks, deadline_after(now, options_.piece_wait_ns),
      [asked, text = pool->text, user = std::uint64_t{pool->user}, reader = self_](
          const AskedMemory& memory, std::uint64_t delivery, std::vector<std::byte>& payload) {
        wire::encode(wire::PeerTracks{user, delivery, memory.inbox, reader, asked.element, asked.all, asked.first_step,
                                      asked.last_step, text, asked.identifiers},
                     payload);
      },
      now, effects);
  return {};
}

Result<std::pair<std::string, std::vector<std::string>>> SiftService::members_of(std::string_view text) {
  OFP_ASSIGN(const Pool* const pool, find(text));
  if (pool == nullptr) return fail(Error::not_found, "there is no pool \"{}\"", text.substr(0, text.find('?')));
  const std::span<const std::string> members = pool->sift->geometry().members();
  return std::pair{pool->text, std::vector<std::string>(members.begin(), members.end())};
}

Result<SiftService::TrackSource> SiftService::track_source(std::string_view text, uid_t user,
                                                           service::Effects& effects) {
  const bool with_options = text.find('?') != std::string_view::npos;
  OFP_ASSIGN(const Pool* const pool, with_options ? define(text, user, effects) : existing(text, user));
  const Geometry& geometry = pool->sift->geometry();
  const std::uint32_t stage = pool->settings.track_stage();
  // an element's number is the low bits of its identifiers, so it stands for one of them
  std::vector<std::uint64_t> elements;
  for (std::uint32_t element = 0; element < pool->settings.elements(stage); ++element)
    if (geometry.owner_name({stage, element}, 0) == self_) elements.push_back(element);
  const std::size_t members = geometry.members().size();
  return TrackSource{pool->text, members, pool->sift->tracks(elements), {buffers_, pool->user}};
}

Status SiftService::serve_peer_tracks(ChannelNumber channel, const channel::Entry& request, TimeNs now,
                                      service::Effects& effects) {
  wire::PeerTracks asked{};
  OFP_TRY(wire::decode(request.payload, asked));
  OFP_ASSIGN(Pool* const pool, define_agreed(asked.pool, static_cast<uid_t>(asked.user), now, effects));
  OFP_ASSIGN(const bool waits, must_wait(*pool, now, channel, request, true));
  if (waits) return {};
  pool::FrameTable::Get get{.channel = channel,
                            .ticket = request.ticket,
                            .user = static_cast<uid_t>(asked.user),
                            .pool = pool->name,
                            .keys = {},
                            .of_member = true,
                            .inbox = asked.inbox,
                            .reader = std::string(asked.reader),
                            .delivery = asked.delivery};
  return read_tracks(*pool, std::move(get),
                     {asked.element, asked.all, asked.first_step, asked.last_step, std::move(asked.identifiers)}, now,
                     effects);
}

// ---- files of tracks

Status SiftService::serve_write(ChannelNumber channel, const channel::Entry& request, TimeNs now,
                                service::Effects& effects) {
  wire::SiftWrite asked{};
  OFP_TRY(wire::decode(request.payload, asked));
  return begin_write(channel, request.ticket, std::string(asked.pool), std::string(asked.directory),
                     asked.wait_ns < 0 ? never : deadline_after(now, asked.wait_ns), now, effects);
}

// Before the pool is ready it waits, but not for longer than the program does.
Status SiftService::begin_write(ChannelNumber channel, std::uint64_t ticket, const std::string& text,
                                const std::string& directory, TimeNs deadline, TimeNs now, service::Effects& effects) {
  if (deadline <= now) return fail(Error::timeout, "pool \"{}\" was not ready to be written in time", text);
  OFP_ASSIGN(Pool* const pool, existing(text, channels_.at(channel)));
  OFP_ASSIGN(const bool waits,
             must_wait(*pool, now, [this, channel, ticket, text, directory, deadline](TimeNs then, auto& more) {
               if (!channels_.contains(channel)) return;
               if (Status begun = begin_write(channel, ticket, text, directory, deadline, then, more); !begun)
                 more.push_back(service::FailEffect{channel, ticket, wire::any_reply, std::move(begun).error()});
             }));
  if (waits) return {};
  const Geometry& geometry = pool->sift->geometry();
  const std::uint32_t stage = pool->settings.track_stage();
  std::set<std::string> keepers;
  for (std::uint32_t element = 0; element < pool->settings.elements(stage); ++element)
    keepers.insert(geometry.owner_name({stage, element}, 0));
  OFP_ASSIGN(const std::uint64_t number, writes_.begin(channel,
                                                       {.name = pool->name,
                                                        .text = pool->text,
                                                        .pool_user = pool->user,
                                                        .user = channels_.at(channel),
                                                        .directory = directory,
                                                        .deadline = deadline},
                                                       {keepers.begin(), keepers.end()}, now, effects));
  effects.push_back(service::ReplyEffect{channel, ticket, wire::Done{number}});
  tell_own_parts(now, effects);
  return {};
}

void SiftService::ask_to_write(const TrackWrites::Ask& ask, const TrackWrites::Wanted& wanted, TimeNs now,
                               service::Effects& effects) {
  using What = wire::PeerWrite::What;
  if (ask.member == self_) {
    const TrackParts::Asker from{.channel = {}, .ticket = ask.number, .write = ask.write};
    const TimeNs until = deadline_after(now, ask.wait_ns);
    if (ask.what != What::begin) return serve_part(from, ask.what, until, now, effects);
    const auto pool = by_name_.find(wanted.name);
    const Status begun = pool == by_name_.end() ? fail(Error::not_found, "there is no pool \"{}\"", wanted.name)
                                                : begin_part(*pool->second, from, process_, wanted.user,
                                                             wanted.directory, until, now, effects);
    if (!begun) own_parts_.emplace_back(ask.number, tl::unexpected(begun.error()));
    return;
  }
  effects.push_back(service::AskEffect{
      service::token_of(service::ServiceId::sift, ask.number), ask.member, EntryKind::peer_write, ask.deadline, nullptr,
      0, [ask, wanted, process = process_](const AskedMemory&, std::vector<std::byte>& payload) {
        wire::encode(wire::PeerWrite{ask.what, wanted.pool_user, wanted.user, process, ask.write, ask.wait_ns,
                                     wanted.text, wanted.directory},
                     payload);
      }});
  std::get<service::AskEffect>(effects.back()).payload_bytes = wanted.text.size() + wanted.directory.size() + 128;
}

Status SiftService::serve_peer_write(ChannelNumber channel, const channel::Entry& request, TimeNs now,
                                     service::Effects& effects) {
  wire::PeerWrite asked{};
  OFP_TRY(wire::decode(request.payload, asked));
  const TrackParts::Asker from{.channel = channel, .ticket = request.ticket, .write = asked.number};
  const TimeNs until = deadline_after(now, asked.wait_ns);
  if (asked.what != wire::PeerWrite::What::begin) {
    serve_part(from, asked.what, until, now, effects);
    return {};
  }
  OFP_ASSIGN(Pool* const pool, define_agreed(asked.pool, static_cast<uid_t>(asked.user), now, effects));
  return begin_part_of(
      {from, asked.process, static_cast<uid_t>(asked.asker), pool->text, std::string(asked.directory), until}, now,
      effects);
}

// As begin_write; the member that asks for it waits until shortly after `until`, or abandons it.
Status SiftService::begin_part_of(const PartAsked& asked, TimeNs now, service::Effects& effects) {
  if (deadline_after(asked.until, options_.ask_wait_ns) <= now)
    return fail(Error::timeout, "member {}: pool \"{}\" was not ready to be written in time", self_, asked.text);
  OFP_ASSIGN(Pool* const pool, find(asked.text));
  if (pool == nullptr) return fail(Error::not_found, "there is no pool \"{}\"", name_in(asked.text));
  const std::pair key{*asked.from.channel, asked.from.write};
  OFP_ASSIGN(
      const bool waits, must_wait(*pool, now, [this, asked, key](TimeNs then, service::Effects& more) {
        if (deferred_parts_.erase(key) == 0) return;
        if (Status begun = begin_part_of(asked, then, more); !begun)
          more.push_back(service::FailEffect{key.first, asked.from.ticket, wire::any_reply, std::move(begun).error()});
      }));
  if (!waits)
    return begin_part(*pool, asked.from, asked.process, asked.asker, asked.directory, asked.until, now, effects);
  deferred_parts_.insert(key);
  return {};
}

// The kernel then decides where the user may write. For another user the agent's rights would.
Status SiftService::begin_part(const Pool& pool, const TrackParts::Asker& from, std::uint64_t process, uid_t asker,
                               std::string directory, TimeNs until, TimeNs now, service::Effects& effects) {
  if (asker != options_.agent_user)
    return fail(Error::denied, "agent {} runs as user {} and writes files for that user alone, not for user {}", self_,
                options_.agent_user, asker);
  const Geometry& geometry = pool.sift->geometry();
  // an element's number is the low bits of its identifiers, so it stands for one of them
  std::vector<std::uint64_t> elements;
  for (const std::uint32_t element : geometry.elements_of(geometry.position_of(self_), pool.settings.track_stage()))
    elements.push_back(element);
  parts_.begin(from, asker, pool.sift->tracks(elements),
               {.path = std::move(directory), .writer = {.member = self_, .process = process, .number = from.write}},
               {buffers_, asker}, until, now, effects);
  return {};
}

void SiftService::serve_part(const TrackParts::Asker& from, wire::PeerWrite::What what, TimeNs until, TimeNs now,
                             service::Effects& effects) {
  using What = wire::PeerWrite::What;
  switch (what) {
    case What::begin:
    case What::more:
      return parts_.more(from, until, now, effects);
    case What::publish:
      return parts_.publish(from, now, effects);
    case What::finish:
      return parts_.finish(from, now, effects);
    case What::abandon:
      if (from.channel) deferred_parts_.erase({*from.channel, from.write});
      parts_.abandon(from, now, effects);
      if (from.channel) effects.push_back(service::ReplyEffect{*from.channel, from.ticket, wire::Written{}});
      return;
  }
}

// Answers of this agent's own parts, which may cause further questions to them.
void SiftService::tell_own_parts(TimeNs now, service::Effects& effects) {
  while (!own_parts_.empty())
    for (const auto& [number, answer] : std::exchange(own_parts_, {})) writes_.on_answer(number, answer, now, effects);
}

Status SiftService::read_tracks(const Pool& pool, pool::Get get, TrackReads::Wanted wanted, TimeNs now,
                                service::Effects& effects) {
  TrackSnapshot tracks = pool.sift->tracks(wanted.of_elements());
  return reads_.read(next_++, std::move(get), std::move(wanted), std::move(tracks), {buffers_, pool.user}, now,
                     effects);
}

}  // namespace offpath::sift
