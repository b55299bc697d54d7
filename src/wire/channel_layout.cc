#include "wire/channel_layout.h"

namespace offpath::wire {

namespace {

Status check_slots(const char* name, std::uint32_t slots) {
  if (!std::has_single_bit(slots) || slots < ring_slots_min || slots > ring_slots_max)
    return fail(Error::invalid, "{} is {}; it must be a power of two from {} to {}", name, slots, ring_slots_min,
                ring_slots_max);
  return {};
}

}  // namespace

Status check_layout(const ChannelLayout& layout) {
  OFP_TRY(check_slots("request_slots", layout.request_slots));
  OFP_TRY(check_slots("reply_slots", layout.reply_slots));
  if (layout.streams_max == 0 || layout.streams_max > streams_max_max)
    return fail(Error::invalid, "streams_max is {}; it must be from 1 to {}", layout.streams_max, streams_max_max);
  return {};
}

}  // namespace offpath::wire
