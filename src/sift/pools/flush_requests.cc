#include "sift/pools/flush_requests.h"

#include <algorithm>

#include "wire/messages/message_kinds.h"
#include "wire/messages/replies.h"

namespace offpath::sift {

using service::AskedMemory;
using wire::EntryKind;
using Input = UnderWay::Input;
using Work = UnderWay::Work;

// Other members would wait for the marks of an absent one as long as the program does.
Status FlushRequests::all_live(const SiftPool& pool) const {
  for (const std::string& member : pool.sift->geometry().members())
    if (!std::ranges::binary_search(context_.alive, member))
      return fail(Error::peer_lost, "pool \"{}\": a flush needs all members, and member {} is away", pool.name, member);
  return {};
}

Status FlushRequests::serve(SiftPool& pool, service::ChannelNumber channel, std::uint64_t ticket, TimeNs wait_ns,
                            TimeNs now, service::Effects& effects) {
  OFP_TRY(all_live(pool));
  const std::uint64_t id = under_way_.next_number();
  ask_all(pool, id, pool.flushes.begin(id, channel, ticket, deadline_after(now, wait_ns)), now, effects);
  return {};
}

// Members answer at the deadline at the latest. A program gives up a second later, so it gets the reason before that.
constexpr TimeNs answers_come_ns = second_ns / 2;

void FlushRequests::ask_all(SiftPool& pool, std::uint64_t id, FlushRounds::Round round, TimeNs now,
                            service::Effects& effects) {
  const std::int64_t wait_ns = std::max<TimeNs>(round.deadline - now, 1);
  for (const std::string& member : pool.sift->geometry().members()) {
    if (member == context_.self) continue;
    effects.push_back(service::AskEffect{under_way_.add(Work{Work::Kind::flush, &pool, id}), member,
                                         EntryKind::peer_flush, deadline_after(round.deadline, answers_come_ns),
                                         nullptr, 0,
                                         [number = round.number, wait_ns, user = std::uint64_t{pool.user},
                                          text = pool.reference](const AskedMemory&, std::vector<std::byte>& payload) {
                                           wire::encode(wire::PeerFlush{user, number, wait_ns, text}, payload);
                                         }});
  }
  pool_effects_.flush(Input{.kind = Input::Kind::flush, .pool = &pool, .token = id}, round.number, round.deadline, now,
                      effects);
}

Status FlushRequests::serve_member(SiftPool& pool, service::ChannelNumber channel, std::uint64_t ticket,
                                   const wire::PeerFlush& flush, TimeNs now, service::Effects& effects) {
  // Rows that this flush has to cover may have been put after a later flush began.
  if (const auto newest = pool.flushes.begin_of_member(flush.number)) {
    effects.push_back(service::ReplyEffect{channel, ticket, wire::Done{*newest}});
    return {};
  }
  OFP_TRY(all_live(pool));
  pool_effects_.flush(Input{.kind = Input::Kind::flush, .pool = &pool, .channel = channel, .ticket = ticket},
                      flush.number, deadline_after(now, flush.wait_ns), now, effects);
  return {};
}

void FlushRequests::on_answer(SiftPool& pool, std::uint64_t id, const Result<std::uint64_t>& newer, TimeNs now,
                              service::Effects& effects) {
  const FlushRounds::Outcome outcome = pool.flushes.on_answer(id, newer, now);
  if (const auto* again = std::get_if<FlushRounds::Round>(&outcome)) ask_all(pool, id, *again, now, effects);
  if (const auto* over = std::get_if<FlushRounds::Over>(&outcome)) tell(*over, effects);
}

void FlushRequests::tell(const FlushRounds::Over& over, service::Effects& effects) {
  if (over.status)
    effects.push_back(service::ReplyEffect{over.channel, over.ticket, wire::Done{0}});
  else
    effects.push_back(service::FailEffect{over.channel, over.ticket, wire::any_reply, over.status.error()});
}

void FlushRequests::on_members(SiftPool& pool, std::span<const std::string> before, std::span<const std::string> anew,
                               TimeNs now, service::Effects& effects) {
  const auto is_anew = [&](const std::string& member) { return std::ranges::find(anew, member) != anew.end(); };
  const auto members = pool.sift->geometry().members();
  const auto lost = std::ranges::find_if(members, [&](const std::string& member) {
    return is_anew(member) ||
           (std::ranges::binary_search(before, member) && !std::ranges::binary_search(context_.alive, member));
  });
  if (lost == members.end()) return;
  const Failure why{Error::peer_lost, fmt::format("pool \"{}\": member {} {} during a flush", pool.name, *lost,
                                                  is_anew(*lost) ? "was restarted" : "was lost")};
  for (const FlushRounds::Over& over : pool.flushes.end_all(why)) tell(over, effects);
  pool.sift->end_flushes(why, pool.pending);
  pool_effects_.carry_out(pool, now, effects);
}

}  // namespace offpath::sift
