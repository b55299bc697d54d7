#include "telemetry/host_sampler/answer.h"

#include <string.h>

#include "base/hash/siphash.h"

// A token is valid in its own span of time and in the next one.
static const int64_t token_span_ns = 60 * (int64_t)1000000000;

static uint64_t token_of(const struct ofs_answerer* answerer, uint64_t session, int64_t span) {
  const uint64_t words[2] = {session, (uint64_t)span};
  const uint64_t token = ofp_siphash64(answerer->token_key, words, sizeof words);
  return token == 0 ? 1 : token;
}

static bool tag_is_right(const struct ofs_answerer* answerer, const uint8_t* bytes, size_t length) {
  uint8_t tag[OFS_TAG_BYTES];
  ofp_siphash128(answerer->key, bytes, length - OFS_TAG_BYTES, tag);
  uint8_t different = 0;  // compares every byte, so that the time reveals nothing
  for (size_t i = 0; i < OFS_TAG_BYTES; ++i) different |= (uint8_t)(tag[i] ^ bytes[length - OFS_TAG_BYTES + i]);
  return different == 0;
}

static size_t sealed(const struct ofs_answerer* answerer, uint8_t* to, size_t length) {
  ofp_siphash128(answerer->key, to, length, to + length);
  return length + OFS_TAG_BYTES;
}

// The session's slot; for a new session the slot of the longest silent one.
static struct ofs_session* session_of(struct ofs_answerer* answerer, uint64_t number, int64_t now_ns) {
  struct ofs_session* oldest = &answerer->sessions[0];
  for (int i = 0; i < OFS_SESSIONS; ++i) {
    struct ofs_session* each = &answerer->sessions[i];
    if (each->session == number && each->highest != 0) return each;
    if (each->highest == 0 ? oldest->highest != 0 : oldest->highest != 0 && each->heard_ns < oldest->heard_ns)
      oldest = each;
  }
  memset(oldest, 0, sizeof *oldest);
  oldest->session = number;
  oldest->heard_ns = now_ns;
  return oldest;
}

// True once for each number; false for a number that is too old to be checked.
static bool is_first(struct ofs_session* session, uint64_t number) {
  if (number == 0) return false;
  if (number > session->highest) {
    const uint64_t step = number - session->highest;
    session->window = step > 63 ? 0 : session->window << step;
    session->window |= 1;
    session->highest = number;
    return true;
  }
  const uint64_t behind = session->highest - number;
  if (behind > 63 || (session->window >> behind & 1) != 0) return false;
  session->window |= (uint64_t)1 << behind;
  return true;
}

static size_t answer_chunk(const struct ofs_answerer* answerer, const struct ofs_header* request,
                           struct ofs_header* header, uint8_t* to) {
  const uint32_t overhead = OFS_HEADER_BYTES + OFS_TAG_BYTES;
  if (request->offset >= answerer->schema_length || request->size <= overhead) return 0;
  uint32_t length = answerer->schema_length - request->offset;
  if (length > request->size - overhead) length = request->size - overhead;
  if (length > OFS_DATAGRAM_MAX - overhead) length = OFS_DATAGRAM_MAX - overhead;
  header->kind = OFS_CHUNK;
  header->offset = request->offset;
  header->size = answerer->schema_length;
  memcpy(to, header, sizeof *header);
  memcpy(to + OFS_HEADER_BYTES, answerer->schema + request->offset, length);
  return sealed(answerer, to, OFS_HEADER_BYTES + length);
}

static size_t answer_values(struct ofs_answerer* answerer, const struct ofs_header* request, struct ofs_header* header,
                            int64_t now_ns, int64_t received_ns, int64_t (*real_ns)(void), uint8_t* to) {
  struct ofs_sources* sources = answerer->sources;
  const uint32_t count = sources->field_count;
  ofs_sources_read(sources, now_ns);
  struct ofs_values values;
  memset(&values, 0, sizeof values);
  values.read_ns = real_ns();
  uint8_t* presence = to + OFS_HEADER_BYTES + OFS_VALUES_BYTES;
  uint8_t* at = presence + (count + 7) / 8;
  memset(presence, 0, (count + 7) / 8);
  for (uint32_t i = 0; i < count; ++i) {
    if (!sources->present[i]) continue;
    presence[i / 8] |= (uint8_t)(1u << i % 8);
    memcpy(at, &sources->bits[i], 8);
    at += 8;
  }
  const size_t length = (size_t)(at - to);
  header->kind = OFS_VALUES;
  if (length + OFS_TAG_BYTES > request->size) {
    header->kind = OFS_TOO_LONG;
    header->size =
        (uint32_t)(OFS_HEADER_BYTES + OFS_VALUES_BYTES + (count + 7) / 8 + 8 * (size_t)count + OFS_TAG_BYTES);
    memcpy(to, header, sizeof *header);
    return sealed(answerer, to, OFS_HEADER_BYTES);
  }
  values.sequence = ++answerer->sequence;
  values.received_ns = received_ns;
  values.cpu_ns = answerer->cpu_ns;
  values.refused = answerer->refused;
  values.resident_kb = answerer->resident_kb;
  values.count = count;
  values.sent_ns = real_ns();
  memcpy(to, header, sizeof *header);
  memcpy(to + OFS_HEADER_BYTES, &values, sizeof values);
  return sealed(answerer, to, length);
}

static size_t answer_request(struct ofs_answerer* answerer, const struct ofs_header* request, int64_t now_ns,
                             int64_t received_ns, int64_t (*real_ns)(void), uint8_t* to) {
  const int64_t span = now_ns / token_span_ns;
  struct ofs_header header = *request;
  header.offset = 0;
  header.size = 0;
  header.schema = answerer->schema_id;
  header.token = token_of(answerer, request->session, span);
  if (request->token != header.token && request->token != token_of(answerer, request->session, span - 1)) {
    header.kind = OFS_TOKEN;
    memcpy(to, &header, sizeof header);
    return sealed(answerer, to, OFS_HEADER_BYTES);
  }
  struct ofs_session* session = session_of(answerer, request->session, now_ns);
  if (!is_first(session, request->number)) return 0;
  session->heard_ns = now_ns;
  if (request->kind == OFS_DESCRIBE) return answer_chunk(answerer, request, &header, to);
  if (request->schema != answerer->schema_id) {
    header.kind = OFS_OTHER_SCHEMA;
    memcpy(to, &header, sizeof header);
    return sealed(answerer, to, OFS_HEADER_BYTES);
  }
  return answer_values(answerer, request, &header, now_ns, received_ns, real_ns, to);
}

size_t ofs_answer(struct ofs_answerer* answerer, const uint8_t* request, size_t length, int64_t now_ns,
                  int64_t received_ns, int64_t (*real_ns)(void), uint8_t* to) {
  size_t answered = 0;
  struct ofs_header header;
  // Requests have no payload.
  if (length == OFS_HEADER_BYTES + OFS_TAG_BYTES) {
    memcpy(&header, request, sizeof header);
    const bool known = header.kind == OFS_DESCRIBE || header.kind == OFS_SAMPLE;
    if (header.magic == OFS_MAGIC && known && tag_is_right(answerer, request, length))
      answered = answer_request(answerer, &header, now_ns, received_ns, real_ns, to);
  }
  if (answered == 0)
    ++answerer->refused;
  else
    ++answerer->answered;
  return answered;
}
