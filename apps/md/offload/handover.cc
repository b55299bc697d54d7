#include "md/offload/handover.h"

#include <offpath/offpath.hpp>
#include <vector>

namespace md {

struct Handover::Parts {
  Parts(const std::string& name, std::int64_t atoms_max)
      : stream(channel, name, {{"id", "i"}, {"type", "i"}, {"x", "+w:3g"}, {"v", "+w:3g"}},
               {.rows_max = static_cast<std::uint64_t>(atoms_max)}) {}

  offpath::Channel channel;
  offpath::Stream stream;
  offpath::Ticket sent = 0;
  std::vector<std::int32_t> id, type;
  std::vector<double> x, v;
};

Handover::Handover(const std::string& stream, std::int64_t atoms_max)
    : parts_(std::make_unique<Parts>(stream, atoms_max)) {}
Handover::~Handover() = default;

void Handover::send(std::int64_t step, int rank, const Atoms& atoms) {
  Parts& p = *parts_;
  if (p.sent != 0) p.stream.wait_pulled(p.sent);
  p.id.assign(atoms.id.begin(), atoms.id.end());
  p.type.assign(atoms.type.begin(), atoms.type.begin() + atoms.own);
  for (std::int32_t& type : p.type) ++type;
  p.x.resize(3 * atoms.own);
  p.v.resize(3 * atoms.own);
  for (std::size_t i = 0; i < atoms.own; ++i) {
    for (std::size_t d = 0; d < 3; ++d) {
      p.x[3 * i + d] = atoms.x[values * i + d];
      p.v[3 * i + d] = atoms.v[values * i + d];
    }
  }
  p.sent = p.stream.send({p.id.data(), p.type.data(), p.x.data(), p.v.data()}, atoms.own,
                         {"step" + std::to_string(step), "rank" + std::to_string(rank)});
}

void Handover::finish() {
  if (parts_->sent != 0) parts_->stream.wait_stored(parts_->sent);
}

}  // namespace md
