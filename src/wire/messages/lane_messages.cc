#include "wire/messages/lane_messages.h"

#include "base/status.h"
#include "wire/limits.h"
#include "wire/messages/message_fields.h"
#include "wire/messages/task_messages.h"

namespace offpath::wire {
namespace {

void fields(auto& way, Is<LaneTable> auto& m) {
  way.begins("table of lanes");
  way.each(m.entries, [&way](auto& entry) {
    way(entry.user, entry.session, entry.lane, entry.lanes);
    way.text(entry.team, name_bytes_max, "a team's name");
  });
}
Status check(const LaneTable& m) {
  if (m.entries.size() > lane_table_max)
    return fail(Error::too_large, "a table of {} lanes, at most {}", m.entries.size(), lane_table_max);
  for (const LaneEntry& entry : m.entries)
    if (entry.team.empty() || entry.lane >= entry.lanes || entry.lanes > task_lanes_max)
      return fail(Error::protocol, "a table has lane {} of {} of team \"{}\"", entry.lane, entry.lanes,
                  brief(entry.team));
  return {};
}

void fields(auto& way, Is<PeerLanes> auto& m) {
  way.begins("lanes of a member");
  way(m.process, m.version);
  object_at(way, m.table);
  way.text(m.sender, name_bytes_max, "the sender");
}
Status check(const PeerLanes& m) {
  if (m.table.length > lane_table_bytes_max)
    return fail(Error::too_large, "a table of lanes of {} bytes, at most {}", m.table.length, lane_table_bytes_max);
  return {};
}

void fields(auto& way, Is<PeerReceive> auto& m) {
  way.begins("receive of a member");
  way(m.user, m.session, m.number, m.room, m.got, m.lanes, m.from, m.to, m.tag);
  way.text(m.reader, name_bytes_max, "the reader");
  way.text(m.team, name_bytes_max, "the team's name");
}
Status check(const PeerReceive& m) {
  if (m.from >= m.lanes || m.to >= m.lanes)
    return fail(Error::protocol, "receive of a member: from lane {} to {} of {}", m.from, m.to, m.lanes);
  return {};
}

void fields(auto& way, Is<PeerMessage> auto& m) {
  way.begins("message of a member");
  way(m.number, m.message, m.length, m.offer);
  object_at(way, m.object);
  way.bytes(m.bytes);
}
Status check(const PeerMessage& m) {
  const bool lies_there = m.offer != 0 || m.object.length == m.length;
  if (m.length > message_bytes_max || m.bytes.size() > message_enclosed_max ||
      (m.bytes.empty() ? !lies_there : m.bytes.size() != m.length))
    return fail(Error::protocol, "message of a member: {} bytes, {} enclosed, {} to be pulled", m.length,
                m.bytes.size(), m.object.length);
  return {};
}

}  // namespace

OFFPATH_LANE_MESSAGES(OFFPATH_DEFINE_CODING)

}  // namespace offpath::wire
