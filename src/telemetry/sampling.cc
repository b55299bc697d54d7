#include "telemetry/sampling.h"

#include <algorithm>
#include <utility>

#include "base/backoff.h"

namespace offpath::exchange {

namespace {

constexpr TimeNs retry_min_ns = millisecond_ns;  // a busy host answers late more often than datagrams are lost
constexpr std::uint32_t schema_bytes_max = 1 << 20;
constexpr std::uint32_t chunk_bytes = 1400;  // of an answer: fits into an Ethernet frame

}  // namespace

Sampling::Sampling(SamplingOptions options, TimeNs now) : options_(std::move(options)), next_at_(now) {
  newest_.producer = options_.producer;
}

TimeNs Sampling::next_deadline() const noexcept {
  return asking_ ? std::min(retry_at_, deadline_after(asked_at_, options_.deadline_ns)) : next_at_;
}

void Sampling::on_time(TimeNs now, SamplingEffects& effects) {
  if (!asking_) {
    if (now >= next_at_) ask(now, effects);
    return;
  }
  if (now - asked_at_ >= options_.deadline_ns) {
    ++counters_.missed;
    trouble_ = "it does not answer";
    asking_ = false;
    ask(now, effects);
  } else if (now >= retry_at_) {
    ++counters_.retransmits;
    retry_after_ = backoff_ns(retry_after_, 1, options_.deadline_ns);
    send(now, effects);
  }
}

// ---- requests

void Sampling::ask(TimeNs now, SamplingEffects& effects) {
  asking_ = true;
  asked_at_ = now;
  attempt_count_ = 0;
  // Missed rounds are not repeated.
  if (now >= next_at_) next_at_ = std::max(deadline_after(next_at_, options_.interval_ns), now);
  const TimeNs usual = clock_.known() ? 4 * clock_.delay_ns(now) : 0;
  retry_after_ =
      usual == 0 ? options_.retry_ns : std::clamp(usual, retry_min_ns, std::max(options_.retry_ns, retry_min_ns));
  send(now, effects);
}

void Sampling::send(TimeNs now, SamplingEffects& effects) {
  ++counters_.requests;
  const bool sampling = token_ != 0 && described();
  const std::uint32_t most = sampling ? options_.answer_bytes_max : std::min(options_.answer_bytes_max, chunk_bytes);
  effects.requests.push_back(encode_request({sampling ? OFS_SAMPLE : OFS_DESCRIBE, options_.session, ++number_, token_,
                                             schema_id_, static_cast<std::uint32_t>(chunks_.size()), most},
                                            options_.key));
  // Beyond that number, answers to the first attempts are too late to be useful.
  if (attempt_count_ == attempts_.size())
    std::rotate(attempts_.begin(), attempts_.begin() + 1, attempts_.end());
  else
    ++attempt_count_;
  attempts_[attempt_count_ - 1] = {number_, now};
  retry_at_ = deadline_after(now, retry_after_);
}

const Sampling::Attempt* Sampling::attempt_of(std::uint64_t number) const noexcept {
  const auto* const end = attempts_.begin() + attempt_count_;
  const auto* const found =
      std::find_if(attempts_.begin(), end, [number](const Attempt& each) { return each.number == number; });
  return asking_ && found != end ? found : nullptr;
}

void Sampling::answered(const SamplerAnswer& answer, TimeNs now) noexcept {
  asking_ = false;
  answered_number_ = answer.header.number;
  heard_at_ = now;
}

// ---- answers

void Sampling::on_datagram(Bytes datagram, TimeNs now, std::int64_t real_ns, SamplingEffects& effects) {
  const auto answer = decode_answer(datagram, options_.key);
  if (!answer || answer->header.session != options_.session || answer->header.number > number_ ||
      answer->header.number == 0) {
    ++counters_.refused;
    return;
  }
  const Attempt* attempt = attempt_of(answer->header.number);
  if (attempt == nullptr) {
    ++(answer->header.number == answered_number_ ? counters_.doubled : counters_.late);
    return;
  }
  const TimeNs asked_at = attempt->at;
  answered(*answer, now);
  // Each answer has a current token, so the token of a host that is asked often never expires.
  const std::uint64_t token_before = std::exchange(token_, answer->header.token);
  switch (answer->header.kind) {
    case OFS_TOKEN:
      if (token_ == token_before) break;  // the answer contradicts itself: the host is asked again later
      if (token_before != 0) ++counters_.restarts;
      ask(now, effects);
      break;
    case OFS_CHUNK:
      take_chunk(*answer, now, effects);
      break;
    case OFS_VALUES:
      take_values(*answer, asked_at, now, real_ns, effects);
      break;
    case OFS_OTHER_SCHEMA:
      describe_anew(now, effects);
      break;
    default:  // the answer would be larger than this side accepts
      trouble_ = fmt::format("a sample takes {} bytes, more than a datagram may have", answer->header.size);
  }
}

void Sampling::describe_anew(TimeNs now, SamplingEffects& effects) {
  schema_id_ = 0;
  chunks_.clear();
  // A request that follows from an answer is sent at once: a host is known after a few round trips, not intervals.
  ask(now, effects);
}

void Sampling::take_chunk(const SamplerAnswer& answer, TimeNs now, SamplingEffects& effects) {
  const bool begins = answer.header.offset == 0;
  if (begins || answer.header.schema != chunks_of_) chunks_.clear();
  chunks_of_ = answer.header.schema;
  if (answer.header.offset != chunks_.size() || answer.payload.empty() || answer.header.size > schema_bytes_max ||
      answer.payload.size() > answer.header.size - std::min<std::size_t>(chunks_.size(), answer.header.size)) {
    // From another schema than the earlier chunks, because the sampler was restarted in between; or invalid.
    chunks_.clear();
    ++counters_.refused;
    return;
  }
  chunks_.insert(chunks_.end(), answer.payload.begin(), answer.payload.end());
  if (chunks_.size() == answer.header.size) {
    auto schema = decode_schema(chunks_);
    chunks_.clear();
    if (!schema || schema->id() != answer.header.schema) {
      trouble_ = schema ? "its schema does not match its id" : schema.error().message;
      ++counters_.refused;
      return;
    }
    schema_ = std::move(*schema);
    schema_id_ = answer.header.schema;
    newest_.values.reset(schema_.fields.size());
    spare_.reset(schema_.fields.size());
    newest_at_ = never;
    ++counters_.schemas;
  }
  ask(now, effects);
}

void Sampling::take_values(const SamplerAnswer& answer, TimeNs asked_at, TimeNs now, std::int64_t real_ns,
                           SamplingEffects& effects) {
  const auto values = answer.header.schema == schema_id_ ? decode_values(answer.payload, spare_)
                                                         : fail(Error::protocol, "values of another schema");
  if (!values) {
    trouble_ = values.error().message;
    ++counters_.refused;
    return;
  }
  std::swap(newest_.values, spare_);
  sampler_ = *values;
  clock_.add({asked_at, now, values->received_ns, values->sent_ns});
  newest_.schema = schema_id_;
  newest_.sequence = values->sequence;
  newest_.source_ns = values->read_ns;
  newest_.receive_ns = real_ns;
  // The value was read between request and arrival, regardless of the clocks.
  newest_at_ = clock_.known() ? std::clamp(clock_.when(values->read_ns, now), asked_at, now) : now;
  ++counters_.samples;
  counters_.wait_ns += static_cast<std::uint64_t>(now - asked_at);
  trouble_.clear();
  ++effects.samples;
  if (options_.interval_ns == 0) ask(now, effects);
}

}  // namespace offpath::exchange
