#include "tcp/program/ring_charges.h"

#include <utility>

namespace offpath::tcp {

using wire::TcpWay;

Status RingCharges::keep_for_first(const Program& program, std::uint32_t handle, const Held::Ring& ring) {
  if (program.blocks->keep_for_first(ring.at, ring.bytes)) return {};
  return fail(Error::protocol, "handle {}: a first ring of {} bytes at {}, where a larger one is", handle, ring.bytes,
              ring.at);
}

// Of one user and of all: whether so much more may be charged. Larger rings leave an eighth to first ones, and one of
// them gets at most a sixteenth of the rest, so that the first to ask does not take all.
bool RingCharges::may_charge(const Program& program, std::uint64_t bytes, RingIs is) const {
  std::uint64_t of_user = 0, of_all = 0;
  programs_.for_each([&](const Program& each) {
    of_all += each.charged_bytes;
    if (each.who.user == program.who.user) of_user += each.charged_bytes;
  });
  const auto fits = [&](std::uint64_t used, std::uint64_t most) {
    most /= core_.cores;
    if (is == RingIs::first) return used + bytes <= most;
    most -= most / 8;
    return used < most && bytes <= (most - used) / 16;
  };
  return fits(of_user, core_.limits.receive_bytes_of_user_max) && fits(of_all, core_.limits.receive_bytes_max);
}

bool RingCharges::charge(Program& program, const Held& held) const {
  const std::uint64_t cost = cost_of(program, held);
  if (cost == 0) return true;
  if (!may_charge(program, cost, RingIs::first)) return false;
  for (const TcpWay way : {TcpWay::out, TcpWay::in}) pay(program, way, held.ring(way));
  return true;
}

// On one machine, the pages of a ring for sending are the program's own.
std::uint64_t RingCharges::cost_of(const Program& program, TcpWay way, const Held::Ring& ring) {
  return way == TcpWay::out && !program.who.linked ? 0 : program.blocks->cost(ring.at, ring.bytes);
}

std::uint64_t RingCharges::cost_of(const Program& program, const Held& held) {
  return cost_of(program, TcpWay::out, held.ring(TcpWay::out)) + cost_of(program, TcpWay::in, held.ring(TcpWay::in));
}

void RingCharges::pay(Program& program, TcpWay way, const Held::Ring& ring) {
  if (way == TcpWay::out && !program.who.linked) return;
  program.charged_bytes += program.blocks->charge(ring.at, ring.bytes);
}

Status RingCharges::lend(const Program& program, std::uint32_t handle, const Held::Ring& ring) {
  if (program.blocks->lend(ring.at, ring.bytes)) return {};
  return fail(Error::protocol, "handle {}: a ring of {} bytes at {}, where another one is", handle, ring.bytes,
              ring.at);
}

bool RingCharges::charge_larger(Program& program, TcpWay way, const Held::Ring& ring) const {
  const std::uint64_t cost = cost_of(program, way, ring);
  if (cost > 0 && !may_charge(program, cost, RingIs::larger)) return false;
  pay(program, way, ring);
  program.lent_bytes += ring.bytes;
  return true;
}

// The program may use the memory for another flow once it is told, and removes its pages. The agent does not: a program
// could make it wait for its file's lock. So the memory stays charged.
void RingCharges::return_ring(Program& program, Held::Ring& ring) {
  if (!std::exchange(ring.lent, false)) return;
  program.blocks->give_back(ring.at, ring.bytes);
  program.lent_bytes -= ring.bytes;
}

}  // namespace offpath::tcp
