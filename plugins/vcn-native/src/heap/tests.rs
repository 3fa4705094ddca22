//! Pieces of memory keep what is written into them, from all threads, within the region and beyond it.

use std::alloc::{GlobalAlloc, Layout};
use std::thread;

use proptest::prelude::*;

use super::{Heap, SIZE};

/// An empty one that no stack has to bear.
#[expect(unsafe_code, reason = "it is made in place")]
fn fresh() -> &'static Heap {
    // SAFETY: of zeroes, it is as [`Heap::new`] makes it: nothing used.
    Box::leak(unsafe { Box::<Heap>::new_zeroed().assume_init() })
}

/// A piece, filled with its mark.
struct Piece {
    pointer: usize,
    layout: Layout,
    mark: u8,
}

#[derive(Clone, Debug)]
enum Act {
    Take { size: usize, align: u32 },
    Zeroed { size: usize },
    Resize { which: prop::sample::Index, size: usize },
    GiveBack { which: prop::sample::Index },
    GiveBackLast,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let size = prop_oneof![18 => 1..600_usize, 1 => 1..300_000_usize, 1 => Just(SIZE)];
    let act = prop_oneof![
        4 => (size.clone(), 0..13_u32).prop_map(|(size, align)| Act::Take { size, align }),
        1 => size.clone().prop_map(|size| Act::Zeroed { size }),
        3 => (any::<prop::sample::Index>(), size).prop_map(|(which, size)| Act::Resize { which, size }),
        2 => any::<prop::sample::Index>().prop_map(|which| Act::GiveBack { which }),
        2 => Just(Act::GiveBackLast),
    ];
    prop::collection::vec(act, 1..200)
}

impl Piece {
    #[expect(unsafe_code, reason = "it is plain memory")]
    fn fill(self) -> Self {
        // SAFETY: the allocator gave this many bytes to this piece alone.
        unsafe { (self.pointer as *mut u8).write_bytes(self.mark, self.layout.size()) };
        self
    }

    #[expect(unsafe_code, reason = "likewise")]
    fn bytes(&self) -> &[u8] {
        // SAFETY: they were filled.
        unsafe { std::slice::from_raw_parts(self.pointer as *const u8, self.layout.size()) }
    }

    #[track_caller]
    fn assert_whole(&self, first: usize) {
        assert_eq!(self.pointer % self.layout.align(), 0, "{:?}", self.layout);
        let first = self.layout.size().min(first);
        assert!(self.bytes()[..first] == vec![self.mark; first], "{:?}", self.layout);
    }
}

/// Does all of it, with marks that begin with `mark`.
#[expect(unsafe_code, reason = "an allocator is called by its unsafe interface")]
fn play(heap: &Heap, acts: Vec<Act>, mut mark: u8) {
    let mut pieces: Vec<Piece> = Vec::new();
    for act in acts {
        mark = mark.wrapping_add(2);
        match act {
            Act::Take { size, align } => {
                let layout = Layout::from_size_align(size, 1 << align).unwrap();
                // SAFETY: the size is not zero.
                let pointer = unsafe { heap.alloc(layout) } as usize;
                pieces.push(Piece { pointer, layout, mark }.fill());
            }
            Act::Zeroed { size } => {
                let layout = Layout::from_size_align(size, 8).unwrap();
                // SAFETY: as above.
                let piece = Piece { pointer: unsafe { heap.alloc_zeroed(layout) } as usize, layout, mark: 0 };
                piece.assert_whole(size);
                pieces.push(Piece { mark, ..piece }.fill());
            }
            Act::Resize { which, size } if !pieces.is_empty() => {
                let at = which.index(pieces.len());
                let old = &mut pieces[at];
                let kept = old.layout.size().min(size);
                // SAFETY: it came from this heap with this layout.
                old.pointer = unsafe { heap.realloc(old.pointer as *mut u8, old.layout, size) } as usize;
                old.layout = Layout::from_size_align(size, old.layout.align()).unwrap();
                old.assert_whole(kept);
                let Piece { pointer, layout, .. } = *old;
                *old = Piece { pointer, layout, mark }.fill();
            }
            Act::GiveBack { .. } | Act::GiveBackLast if !pieces.is_empty() => {
                let at = if let Act::GiveBack { which } = act { which.index(pieces.len()) } else { pieces.len() - 1 };
                let piece = pieces.remove(at);
                piece.assert_whole(usize::MAX);
                // SAFETY: it came from this heap with this layout, and nobody has it any more.
                unsafe { heap.dealloc(piece.pointer as *mut u8, piece.layout) };
            }
            _ => {}
        }
    }
    pieces.iter().for_each(|piece| piece.assert_whole(usize::MAX));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_piece_keeps_what_is_written_into_it(acts in acts()) {
        play(fresh(), acts, 1);
    }

    #[test]
    fn so_it_does_when_two_threads_take_and_give_back(one in acts(), other in acts()) {
        let heap = fresh();
        let beside = thread::spawn(move || play(heap, other, 2));
        play(heap, one, 1);
        beside.join().unwrap();
    }
}

#[test]
#[expect(unsafe_code, reason = "likewise")]
fn what_was_taken_last_is_given_back_and_grows_where_it_is() {
    let heap = fresh();
    let layout = |size| Layout::from_size_align(size, 1).unwrap();
    // SAFETY: sizes are not zero, and pieces are given back with the layout that they have.
    unsafe {
        let first = heap.alloc(layout(10));
        let second = heap.alloc(layout(10));
        assert_eq!(heap.realloc(second, layout(10), 1000), second);
        heap.dealloc(second, layout(1000));
        assert_eq!(heap.alloc(layout(20)), second);
        assert_eq!(heap.realloc(first, layout(10), 5), first, "there is no need to move what shrinks");
        assert_ne!(heap.realloc(first, layout(5), 11), first);
        assert!(heap.offset(heap.alloc(layout(SIZE))).is_none(), "dlmalloc has room for what is too large");
    }
}
