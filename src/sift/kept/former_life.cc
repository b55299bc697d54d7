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
      pieces.emplace_back(*name, item);
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
    add(effects, ReadEffect{token, name.text()});
  }
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
    add(effects, ReadEffect{token, reading_.at(token).text()});
  }
}

Status FormerLife::open(const KeptName& name, Result<FramePtr> object, Effects& effects) {
  OFP_TRY(object);
  OFP_ASSIGN(const KeptParts parts, open_kept({(*object)->buffer.data(), (*object)->bytes}));
  if (name.kind == KeptName::Kind::split) {
    OFP_ASSIGN(ElementRecord record, decode_record(parts.notes));
    splits.emplace(name.element, std::move(record));
    return {};
  }
  OFP_ASSIGN(RunNotes notes, decode_run_notes(parts.notes));
  const auto run = std::make_shared<Run>();
  OFP_ASSIGN(run->record, decode_record(notes.record));
  if (form_.tracks == nullptr) {
    OFP_ASSIGN(form_.tracks, TrackForm::of_frame(notes.schema, options_.settings.key));
    form_.overhead_bytes = form_.tracks->rows->overhead_bytes();
  }
  OFP_TRY(form_.tracks->rows->view(notes.schema));
  const std::uint64_t token = next_token_++;
  opening_.emplace(token, Opening{name, run});
  add(effects,
      JobEffect{token, [run, notes = std::move(notes), object = *object, form = form_.tracks->rows]() -> Status {
                  OFP_ASSIGN(run->run, TrackRun::open(form, object, notes));
                  return {};
                }});
  return {};
}

void FormerLife::on_job(std::uint64_t token, const Status& status, TimeNs now) {
  const Opening opened = std::move(opening_.extract(token).mapped());
  if (status)
    runs[opened.name.element].push_back(*opened.run);
  else if (!is_lost(status.error().code))
    read_later(next_token_++, opened.name, now);
  else
    note_loss(opened.name, status.error());
}

void FormerLife::note_loss(const KeptName& name, const Failure& why) const {
  log(LogLevel::error, "pool '{}': {} of '{}' is lost: {}", options_.settings.pool, name.text(), options_.self.member,
      why.message);
}

}  // namespace offpath::sift
