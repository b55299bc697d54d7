#include "wire/messages/pool_messages.h"

#include "wire/limits.h"
#include "wire/messages/message_fields.h"
#include "wire/slot.h"

namespace offpath::wire {
namespace {

// The largest requests: a computation has four keys and its arguments, a drop two patterns.
static_assert(4 * key_bytes_max + pool_bytes_max + 3 * name_bytes_max + arguments_bytes_max + 1024 <= entry_bytes_max);
static_assert(2 * pattern_bytes_max + pool_bytes_max + 1024 <= entry_bytes_max);

void fields(auto& way, Is<PoolGet> auto& m) {
  way.begins("get");
  way.text(m.pool, pool_bytes_max, "the pool's name");
  way.text(m.row_key, key_bytes_max, the_row_key);
  way.text(m.column_key, key_bytes_max, the_column_key);
  way(m.wait_ns);
}

void fields(auto& way, Is<PoolList> auto& m) {
  way.begins("list");
  globs(way, m);
  way(m.after);
}

void fields(auto& way, Is<PoolDrop> auto& m) {
  way.begins("drop");
  globs(way, m);
}

void fields(auto& way, Is<PoolWrite> auto& m) {
  way.begins("write");
  way.text(m.pool, pool_bytes_max, "the pool's name");
  way(m.offer);
}

void fields(auto& way, Is<PoolQuery> auto& m) {
  way.begins("query");
  globs(way, m);
  way(m.wait_ns, m.query.region, m.query.generation, m.query.offset, m.query.length);
}

void fields(auto& way, Is<QueryNext> auto& m) {
  way.begins("request for an answer's frame");
  way(m.answer, m.index);
}

void fields(auto& way, Is<PushLease> auto& m) {
  way.begins("request for a lease's bytes");
  way(m.lease, m.segment);
}
Status check(const PushLease& m) {
  if (!is_segment(m.segment))
    return fail(Error::invalid, "lease {} is to be pushed into region {:#x}, which is not a segment", m.lease,
                m.segment);
  return {};
}

void fields(auto& way, Is<Release> auto& m) {
  way.begins("release");
  way(m.lease);
}

void fields(auto& way, Is<PoolCancel> auto& m) {
  way.begins("cancellation of a get");
  way(m.ticket);
}

void fields(auto& way, Is<PoolCompute> auto& m) {
  way.begins("computation");
  keys(way, m);
  way(m.wait_ns);
  function(way, m);
}
Status check(const PoolCompute& m) { return check_arguments(m.arguments); }

}  // namespace

OFFPATH_POOL_MESSAGES(OFFPATH_DEFINE_CODING)

}  // namespace offpath::wire
