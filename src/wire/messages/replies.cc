#include "wire/messages/replies.h"

#include "wire/messages/message_fields.h"

namespace offpath::wire {
namespace {

void fields(auto& way, Is<Failed> auto& m) {
  way.begins("failure");
  way(m.stream);
  way.error(m.code);
  way.cut(m.message, 480);
}

void fields(auto& way, Is<Opened> auto& m) {
  way.begins("opened");
  way(m.stream, m.charge_base);
}

void fields(auto& way, Is<Probed> auto& m) {
  way.begins("probed");
  way(m.seen_ns);
}

void fields(auto& way, Is<Got> auto& m) {
  way.begins("got");
  way.choice(m.how, Got::How::enclosed, "way");
  way(m.arrow, m.lease, m.length, m.rows);
  way.bytes(m.bytes);
}
Status check(const Got& m) {
  const std::uint64_t wanted = m.how == Got::How::enclosed ? m.length : 0;
  if (m.bytes.size() != wanted || wanted > enclosed_bytes_max)
    return fail(Error::protocol, "got: {} bytes enclosed of an object of {} bytes, delivered in way {}", m.bytes.size(),
                m.length, static_cast<int>(m.how));
  return {};
}

void fields(auto& way, Is<Listed> auto& m) {
  way.begins("listed");
  way(m.more, m.view);
  way.each(m.entries, [&way](auto& entry) {
    way(entry.sequence, entry.bytes, entry.rows, entry.arrow, entry.row_key, entry.column_key, entry.member);
  });
}

void fields(auto& way, Is<Done> auto& m) {
  way.begins("done");
  way(m.value);
}

void fields(auto& way, Is<Written> auto& m) {
  way.begins("progress of a write");
  way(m.over, m.members, m.members_over, m.files, m.rows, m.bytes);
}

}  // namespace

OFFPATH_REPLY_MESSAGES(OFFPATH_DEFINE_CODING)

}  // namespace offpath::wire
