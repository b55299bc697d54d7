// Flushes of one sift pool on this agent: those for which members wait, and how far each one has passed (sift.h says
// how a flush passes from stage to stage).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sift/element.h"
#include "sift/publish/publications.h"

namespace offpath::sift {

class Flushes {
 public:
  // The references outlive this. `self`: this agent's position among the members.
  Flushes(const SiftOptions& options, const Geometry& geometry, std::uint32_t self, Publications& publications);

  // True: it is newer than all earlier ones, so the element of stage 1 has to pass it on.
  [[nodiscard]] bool begin(std::uint64_t token, std::uint64_t flush, TimeNs deadline);
  // A source's mark has arrived. With the marks of all sources, the pieces taken so far precede the flush.
  void take_mark(Element& to, const PieceHeader& mark);
  // Passes on each flush of the element whose pieces have all left, by a mark to the next stage.
  void pass(Element& element, std::uint32_t overhead_bytes);
  // Ends flushes that all elements here have passed, or whose deadline is over.
  void end(Elements& elements, TimeNs now, Effects& effects);
  // Fails all flushes that members wait for.
  void end_all(const Status& status, Effects& effects);
  void drop(const Status& status, Effects& effects);

  [[nodiscard]] TimeNs next_deadline() const noexcept;

  std::string held_back;  // why tracks take no pieces at the moment, for errors; empty if they do

 private:
  struct Flush {
    std::uint64_t token, flush;
    TimeNs deadline;
  };

  [[nodiscard]] const std::vector<std::string>& expected_sources(Element& element) const;
  [[nodiscard]] std::string describe(Elements& elements, std::uint64_t flush) const;

  const SiftOptions& options_;
  const Geometry& geometry_;
  std::uint32_t self_;
  Publications& publications_;
  std::uint64_t newest_ = 0;
  std::vector<Flush> waiting_;
  std::map<std::uint64_t, std::uint64_t> passed_;  // flush -> elements of the last stage here that passed it last
};

}  // namespace offpath::sift
