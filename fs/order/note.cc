#include "fs/order/note.h"

#include "fs/order/learner.h"

namespace kvcachefs::order {

void tell(Learner& learner, const Note& note) {
  switch (note.what) {
    case Note::What::kHit:
      learner.probe(note.name, note.caller, Lookup::kHit, note.when_ns);
      break;
    case Note::What::kMiss:
      learner.probe(note.name, note.caller, Lookup::kMiss, note.when_ns);
      break;
    case Note::What::kStoreBegan:
      learner.store_start(note.name, note.caller, note.when_ns);
      break;
    case Note::What::kStored:
      learner.published(note.name, note.when_ns);
      break;
    case Note::What::kLoaded:
      learner.load(note.name, note.caller, note.when_ns);
      break;
    case Note::What::kRemoved:
      learner.forget(note.name);
      break;
    case Note::What::kGrouped:
      learner.set_group(note.name, note.group);
      break;
    case Note::What::kBecame:
      learner.rename(note.was, note.name);
      break;
    case Note::What::kListed:
      learner.enumerated(note.caller, note.when_ns);
      break;
    case Note::What::kNotListed:
      learner.silent_until(note.caller, note.until_ns, note.when_ns);
      break;
  }
}

}  // namespace kvcachefs::order
