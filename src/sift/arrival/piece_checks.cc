#include "sift/arrival/piece_checks.h"

#include <algorithm>

namespace offpath::sift {

Status PieceChecks::may_put() const {
  if (geometry_.holds(self_, {1, 0})) return {};
  return fail(Error::unsupported,
              "'{}' takes no rows of sift pool '{}', of which stage1={}: put them through an agent of "
              "that stage",
              options_.self.member, options_.settings.pool, options_.settings.selectors.at(1));
}

Status PieceChecks::put(std::string_view row_key, const FramePtr& frame, Arrival& arrival) {
  OFP_TRY(may_put());
  OFP_ASSIGN(const std::int64_t step, step_of(row_key));
  if (frame == nullptr || !frame->arrow)
    return fail(Error::schema, "'{}' is not an Arrow frame: sift pools take frames of the destination ipc-page or ipc",
                row_key.substr(0, 200));
  const Bytes bytes(frame->buffer.data(), frame->bytes);
  std::shared_ptr<const TrackForm> form = form_.tracks;
  if (form == nullptr) {
    OFP_ASSIGN(form, TrackForm::of_frame(bytes, options_.settings.key_rule()));
    OFP_TRY(TrackForm::check_names(form->rows->schema()));
  }
  const RowForm& row_form = *form->rows;
  OFP_ASSIGN(arrival.view, row_form.view_ends(bytes));
  if (arrival.view->rows == 0) return {};
  if (form_.tracks == nullptr && form_.overhead_bytes != 0 && form_.overhead_bytes != row_form.overhead_bytes())
    return fail(Error::schema, "frames of the pool have {} bytes beside their rows, but this one has {}",
                form_.overhead_bytes, row_form.overhead_bytes());
  form_.tracks = std::move(form);
  form_.overhead_bytes = row_form.overhead_bytes();
  arrival.header.runs = {{step, arrival.view->rows}};
  const std::uint64_t rows = arrival.view->rows;
  const std::uint64_t made_bytes = row_form.frame_bytes(rows, arrival.view->text_bytes()) + form_.overhead_bytes;
  arrival.bytes = std::max(frame->bytes, made_bytes);
  arrival.charge = charges_.of_piece(std::max(arrival.bytes, frame->buffer.capacity()), rows);
  arrival.frame = frame;
  return charges_.check(arrival.charge);
}

Status PieceChecks::offer(const PieceHeader& header, std::uint64_t bytes) {
  if (header.pool != options_.settings.pool)
    return fail(Error::not_found, "there is no sift pool '{}' here", header.pool);
  if (header.element.stage < 2 || !geometry_.holds(self_, header.element)) {
    return fail(Error::not_found, "'{}' does not hold element {} of stage {} of '{}'", options_.self.member,
                header.element.index, header.element.stage, header.pool);
  }
  if (options_.kept && geometry_.position_of(header.source.member) == geometry_.members().size())
    return fail(Error::denied, "'{}' is not a member of sift pool '{}'", header.source.member, header.pool);
  if (header.flush != 0) return {};
  if (form_.overhead_bytes == 0) form_.overhead_bytes = header.overhead_bytes;
  if (header.overhead_bytes != form_.overhead_bytes) {
    return fail(Error::schema, "a piece of '{}' has {} bytes beside its rows, but the pool's have {}",
                header.source.member, header.overhead_bytes, form_.overhead_bytes);
  }
  return charges_.check(charges_.of_piece(bytes, header.rows()));
}

Status PieceChecks::frame(Arrival& arrival) {
  const Bytes bytes(arrival.frame->buffer.data(), arrival.frame->bytes);
  if (bytes.size() != arrival.bytes)
    return fail(Error::protocol, "a piece of '{}' has {} bytes, but {} were offered", arrival.header.source.member,
                bytes.size(), arrival.bytes);
  if (form_.tracks == nullptr) {
    OFP_ASSIGN(const std::shared_ptr<const TrackForm> form, TrackForm::of_frame(bytes, options_.settings.key_rule()));
    if (form->rows->overhead_bytes() != form_.overhead_bytes)
      return fail(Error::schema, "a piece has {} bytes beside its rows, but its header says {}",
                  form->rows->overhead_bytes(), form_.overhead_bytes);
    form_.tracks = form;
  }
  OFP_ASSIGN(arrival.view, form_.tracks->rows->view_ends(bytes));
  if (arrival.view->rows != arrival.header.rows())
    return fail(Error::protocol, "a piece has {} rows, but its header says {}", arrival.view->rows,
                arrival.header.rows());
  // Columns may lie in the same bytes there. Parts would be larger than what it was charged for.
  const std::uint64_t apart = form_.tracks->rows->frame_bytes(arrival.view->rows, arrival.view->text_bytes());
  if (apart > bytes.size())
    return fail(Error::protocol, "a piece of '{}' has {} bytes, but its {} rows alone have {}: its columns overlap",
                arrival.header.source.member, bytes.size(), arrival.view->rows, apart);
  return {};
}

Status PieceChecks::kept_frame(Arrival& arrival, FramePtr object) {
  OFP_ASSIGN(const KeptParts parts, open_kept({object->buffer.data(), object->bytes}));
  OFP_ASSIGN(PieceHeader header, decode_piece_header(parts.notes));
  if (header.element != arrival.header.element || header.source != arrival.header.source ||
      header.sequence != arrival.header.sequence)
    return fail(Error::protocol, "another object, piece {} of '{}', has its name", header.sequence,
                header.source.member);
  if (form_.tracks == nullptr) {
    OFP_ASSIGN(form_.tracks, TrackForm::of_frame(parts.body, options_.settings.key_rule()));
    form_.overhead_bytes = form_.tracks->rows->overhead_bytes();
  }
  OFP_ASSIGN(arrival.view, form_.tracks->rows->view_ends(parts.body));
  if (arrival.view->rows == 0 || arrival.view->rows != header.rows())
    return fail(Error::protocol, "a kept piece has {} rows, but its header says {}, at least 1", arrival.view->rows,
                header.rows());
  arrival.header = std::move(header);
  arrival.bytes = parts.body.size();
  arrival.frame = std::move(object);
  return {};
}

// ---- rows

namespace {

// Checks rows that a program puts: so far only their frame was checked.
Status check_rows(const RowForm& form, const RowsView& view) {
  OFP_TRY(form.check_text(view));
  return form.check_utf8(view);
}

// Checks a piece of another member.
Status check_seal(const RowForm& form, const PieceHeader& header, const RowsView& view) {
  OFP_TRY(form.check_text(view));
  const std::uint32_t sum = seal(header, crc32c_of_identifiers(view));
  if (sum == header.crc32c) return {};
  return fail(Error::protocol, "piece {} of '{}' has checksum {:08x}, but its header says {:08x}", header.sequence,
              header.source.member, sum, header.crc32c);
}

}  // namespace

std::function<Status()> PieceChecks::of_rows(const Arrival& arrival) const {
  return [form = form_.tracks, header = arrival.header, frame = arrival.frame, view = *arrival.view,
          put = arrival.put] { return put ? check_rows(*form->rows, view) : check_seal(*form->rows, header, view); };
}

std::function<Status()> PieceChecks::of_kept_rows(const Arrival& arrival) const {
  return [form = form_.tracks->rows, frame = arrival.frame, view = *arrival.view] { return form->check_text(view); };
}

}  // namespace offpath::sift
