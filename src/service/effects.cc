#include "service/effects.h"

namespace offpath::service {

// In place: GCC 12 warns about moving a variant.
template <class Kind>
void Effects::push_back(Kind effect) {
  emplace_back(std::in_place_type<Kind>, std::move(effect));
}
template void Effects::push_back(PullEffect);
template void Effects::push_back(PushEffect);
template void Effects::push_back(LineEffect);
template void Effects::push_back(ReplyEffect);
template void Effects::push_back(ListedEffect);
template void Effects::push_back(MembersEffect);
template void Effects::push_back(FailEffect);
template void Effects::push_back(HandOverEffect);
template void Effects::push_back(JobEffect);
template void Effects::push_back(StoredEffect);
template void Effects::push_back(AskEffect);
template void Effects::push_back(CallEffect);
template void Effects::push_back(CancelCallEffect);
template void Effects::push_back(AnswerOperationEffect);

void answer(Effects& effects, ChannelNumber channel, std::uint64_t ticket, Result<std::uint64_t> number) {
  if (number)
    effects.push_back(ReplyEffect{channel, ticket, wire::Done{*number}});
  else
    effects.push_back(FailEffect{channel, ticket, wire::any_reply, std::move(number).error()});
}

void answer_outcome(Effects& effects, ChannelNumber channel, std::uint64_t ticket, Status outcome) {
  answer(effects, channel, ticket,
         outcome ? Result<std::uint64_t>(0) : Result<std::uint64_t>(tl::unexpected(std::move(outcome).error())));
}

void pull(Effects& effects, ChannelNumber channel, std::uint64_t token, const wire::BufferRef& from, std::byte* to) {
  effects.push_back(PullEffect{channel, token, {{from.region, from.generation, from.offset, to, from.length}}});
}

}  // namespace offpath::service
