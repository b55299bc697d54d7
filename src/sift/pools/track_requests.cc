#include "sift/pools/track_requests.h"

#include "wire/messages/message_kinds.h"

namespace offpath::sift {

using service::AskedMemory;
using wire::EntryKind;

TrackRequests::TrackRequests(const ServiceContext& context, UnderWay& under_way)
    : context_(context),
      under_way_(under_way),
      reads_(context.options.tracks_bytes_max,
             [this](const pool::Get& get, const FramePtr& frame, TimeNs now, service::Effects& effects) {
               context_.pools.answer(get, frame, now, effects);
             }) {}

Result<std::uint32_t> TrackRequests::element_of(const SiftPool& pool, std::span<const std::uint64_t> identifiers) {
  if (identifiers.empty()) return fail(Error::invalid, "pool \"{}\": no identifiers were named", pool.name);
  if (pool.settings.by != KeyBy::bits)
    return fail(Error::unsupported, "pool \"{}\" has by={}: its tracks are found by a query over '{}', not by number",
                pool.name, pool.settings.by == KeyBy::hash ? "hash" : "range", pool.settings.key);
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

Status TrackRequests::serve(const SiftPool& pool, service::ChannelNumber channel, std::uint64_t ticket,
                            wire::SiftTracks asked, TimeNs now, service::Effects& effects) {
  if (!asked.all) {
    OFP_ASSIGN(asked.element, element_of(pool, asked.identifiers));
  }
  const std::uint32_t elements = pool.settings.elements(pool.settings.track_stage());
  if (asked.element >= elements)
    return fail(Error::invalid, "element {} of a pool of {} elements", asked.element, elements);
  pool::FrameTable::Get get{
      .channel = channel, .ticket = ticket, .user = context_.channels.at(channel), .pool = pool.name, .keys = {}};
  const std::string& owner = pool.sift->geometry().owner_name({pool.settings.track_stage(), asked.element}, 0);
  if (owner == context_.self)
    return read(pool, std::move(get),
                {asked.element, asked.all, asked.first_step, asked.last_step, std::move(asked.identifiers)}, now,
                effects);
  context_.pools.fetch(
      std::move(get), owner, EntryKind::peer_tracks, deadline_after(now, context_.options.piece_wait_ns),
      [asked, text = pool.reference, user = std::uint64_t{pool.user}, reader = context_.self](
          const AskedMemory& memory, std::uint64_t delivery, std::vector<std::byte>& payload) {
        wire::encode(wire::PeerTracks{user, delivery, memory.inbox, reader, asked.element, asked.all, asked.first_step,
                                      asked.last_step, text, asked.identifiers},
                     payload);
      },
      now, effects);
  return {};
}

Status TrackRequests::serve_member(const SiftPool& pool, service::ChannelNumber channel, std::uint64_t ticket,
                                   wire::PeerTracks asked, TimeNs now, service::Effects& effects) {
  pool::FrameTable::Get get{.channel = channel,
                            .ticket = ticket,
                            .user = static_cast<uid_t>(asked.user),
                            .pool = pool.name,
                            .keys = {},
                            .of_member = true,
                            .inbox = asked.inbox,
                            .reader = std::string(asked.reader),
                            .delivery = asked.delivery};
  return read(pool, std::move(get),
              {asked.element, asked.all, asked.first_step, asked.last_step, std::move(asked.identifiers)}, now,
              effects);
}

Status TrackRequests::read(const SiftPool& pool, pool::Get get, TrackReads::Wanted wanted, TimeNs now,
                           service::Effects& effects) {
  TrackSnapshot tracks = pool.sift->tracks(std::span(&wanted.element, 1));
  return reads_.read(under_way_.next_number(), std::move(get), std::move(wanted), std::move(tracks),
                     {context_.buffers, pool.user}, now, effects);
}

}  // namespace offpath::sift
