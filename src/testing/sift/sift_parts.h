// The parts of one sift pool on one agent, without the Sift that joins them.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sift/arrival/piece_checks.h"
#include "sift/elements/batches.h"
#include "sift/elements/due_elements.h"
#include "sift/elements/element_records.h"
#include "sift/elements/track_merges.h"
#include "sift/split/particles.h"
#include "testing/sift/taken_effects.h"

namespace offpath::sift {

struct SiftParts {
  explicit SiftParts(std::string_view name, const std::vector<std::string>& members = {"a"}, bool kept = false)
      : options{.settings = parse_settings(name).value(), .self = {"a", 1}, .memory = memory, .kept = kept},
        geometry(Geometry::make(options.settings, members).value()) {
    form.tracks = TrackForm::make(particle_schema(), options.settings.key_rule()).value();
    form.overhead_bytes = form.tracks->rows->overhead_bytes();
  }

  template <class Kind>
  std::vector<Kind> take() {
    return taken_effects<Kind>(effects);
  }
  // Rows `first` to `first + rows` of a step.
  FramePtr frame(std::uint64_t first, std::uint64_t rows, std::int64_t step) {
    std::vector<std::uint64_t> ids(rows);
    for (std::uint64_t i = 0; i < rows; ++i) ids[i] = first + i;
    return particle_frame(*form.tracks->rows, ids, step, memory);
  }
  // The element takes such rows as its next piece, which is charged.
  void give(Element& element, std::uint64_t rows, std::int64_t step = 0) {
    HeldPiece held;
    held.piece.frame = frame(0, rows, step);
    held.bytes = held.piece.frame->bytes;
    held.piece.view = form.tracks->rows->view({held.piece.frame->buffer.data(), held.bytes}).value();
    held.piece.runs = {{step, rows}};
    held.charge = charges.of_piece(held.bytes, rows);
    held.order = ++element.taken;
    held.key = {0, 1, held.order};
    budgets.charge(element.id.stage, held.charge);
    element.bytes += held.bytes;
    element.pieces.push_back(std::move(held));
  }
  // A piece of another member, as it would offer it.
  static PieceHeader header(ElementId to, std::uint64_t sequence, std::uint64_t rows) {
    PieceHeader made;
    made.element = to;
    made.source = {"b", 1};
    made.sequence = sequence;
    made.runs = {{0, rows}};
    return made;
  }

  FrameMemory memory{BufferCache::make({.huge_pages = false}), 7};
  SiftOptions options;
  Geometry geometry;
  PoolForm form;
  std::uint64_t next_token = 1;
  Effects effects;
  Charges charges{options, form};
  StageBudgets budgets{options.settings.track_stage(), options.settings.budget_bytes};
  Elements elements;
  Arrivals arrivals{options, budgets, elements, next_token};
  Publications publications{options, geometry, 0, budgets};
  TrackMemory track_memory{options};
  TrackMerges merges{options, form, budgets, elements, track_memory};
  DueElements due{options, budgets, elements, merges};
  Batches batches{options, form, charges, track_memory};
  ElementRecords records{options, geometry, form, charges, budgets, publications};
};

}  // namespace offpath::sift
