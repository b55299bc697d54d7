#include "sift/kept/former_life.h"

#include <algorithm>

#include "base/log.h"

namespace offpath::sift {

void FormerLife::begin(const std::vector<KeptItem>& items, const Geometry& geometry, std::uint32_t self,
                       Elements& elements, Effects& effects) {
  std::map<ElementId, KeptName> newest;
  std::vector<KeptName> wanted;
  for (const KeptItem& item : items) {
    const auto name = KeptName::parse(item.name);
    if (!name || !geometry.holds(self, name->element)) continue;
    if (name->kind == KeptName::Kind::piece) {
      if (name->piece.source < geometry.members().size()) pieces.emplace_back(*name, item);
      continue;
    }
    Element& of = elements[name->element];
    of.number = std::max(of.number, name->number);
    if (name->kind == KeptName::Kind::run) {
      wanted.push_back(*name);
    } else {
      auto [at, fresh] = newest.try_emplace(name->element, *name);
      const KeptName older = fresh || at->second.number > name->number ? *name : std::exchange(at->second, *name);
      if (!fresh) add(effects, ForgetEffect{older.text()});
    }
  }
  for (const auto& [element, name] : newest) wanted.push_back(name);
  for (const KeptName& name : wanted) {
    const std::uint64_t token = next_token_++;
    reading_.emplace(token, name);
    add(effects, ReadEffect{token, name.text(), is_read_in_parts(name)});
  }
}

// Tracks that had left memory for the disk.
bool FormerLife::is_read_in_parts(const KeptName& name) const noexcept {
  return options_.settings.spills() && name.kind == KeptName::Kind::run;
}

void FormerLife::on_read(std::uint64_t token, Result<FramePtr> object, TimeNs now, Effects& effects) {
  const auto reading = reading_.find(token);
  if (reading == reading_.end()) return;
  const KeptName name = reading->second;
  if (!object && !is_lost(object.error().code)) return read_later(token, name, now);
  reading_.erase(reading);
  if (const Status opened = open(name, std::move(object), effects); !opened) note_loss(name, opened.error());
}

void FormerLife::read_later(std::uint64_t token, const KeptName& name, TimeNs now) {
  reading_.emplace(token, name);
  retries_.emplace(deadline_after(now, options_.retry_max_ns), token);
}

void FormerLife::on_time(TimeNs now, Effects& effects) {
  while (!retries_.empty() && retries_.begin()->first <= now) {
    const std::uint64_t token = retries_.begin()->second;
    retries_.erase(retries_.begin());
    const KeptName& name = reading_.at(token);
    add(effects, ReadEffect{token, name.text(), is_read_in_parts(name)});
  }
}

Status FormerLife::open(const KeptName& name, Result<FramePtr> object, Effects& effects) {
  OFP_TRY(object);
  if (name.kind == KeptName::Kind::split) {
    OFP_ASSIGN(const KeptParts parts, open_kept({(*object)->buffer.data(), (*object)->bytes}));
    OFP_ASSIGN(ElementRecord record, decode_record(parts.notes));
    splits.emplace(name.element, std::move(record));
    return {};
  }
  const auto run = std::make_shared<Run>();
  const auto form = std::make_shared<std::shared_ptr<const TrackForm>>(form_.tracks);
  const std::uint64_t token = next_token_++;
  opening_.emplace(token, Opening{name, run, form});
  add(effects, JobEffect{token, [run, form, object = *object, key = options_.settings.key_rule()]() -> Status {
                           OFP_ASSIGN(const std::vector<std::byte> bytes, read_kept_notes(*object));
                           OFP_ASSIGN(const RunNotes notes, decode_run_notes(bytes));
                           OFP_ASSIGN(run->record, decode_record(notes.record));
                           if (*form == nullptr) {
                             OFP_ASSIGN(*form, TrackForm::of_frame(notes.schema, key));
                           }
                           OFP_TRY((*form)->rows->view(notes.schema));
                           OFP_ASSIGN(run->run, TrackRun::open((*form)->rows, object, notes));
                           return {};
                         }});
  return {};
}

void FormerLife::on_job(std::uint64_t token, const Status& status, TimeNs now) {
  const Opening opened = std::move(opening_.extract(token).mapped());
  if (!status) {
    if (!is_lost(status.error().code)) return read_later(next_token_++, opened.name, now);
    return note_loss(opened.name, status.error());
  }
  if (form_.tracks == nullptr) {
    form_.tracks = *opened.form;
    form_.overhead_bytes = form_.tracks->rows->overhead_bytes();
  }
  if ((*opened.form)->rows->schema() != form_.tracks->rows->schema())
    return note_loss(opened.name, {Error::schema, "its columns are not those of the other runs"});
  runs[opened.name.element].push_back(*opened.run);
}

void FormerLife::note_loss(const KeptName& name, const Failure& why) const {
  log(LogLevel::error, "pool '{}': {} of '{}' is lost: {}", options_.settings.pool, name.text(), options_.self.member,
      why.message);
}

}  // namespace offpath::sift
