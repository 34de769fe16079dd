//! The set that is drawn.

use crate::data::{MOST_CLASSES, Rendering, render};
use std::{collections::BTreeSet, fs};

const SET: Rendering = Rendering { classes: 100, per_class: 600, size: 64, seed: 1 };

/// On every machine: results that rest on these images rest on these numbers.
#[test]
fn the_same_seed_draws_the_same_pixels_everywhere() {
    let mut crc = flate2::Crc::new();
    for class in (0..100).step_by(3) {
        crc.update(&SET.draw(class, class * 5));
    }
    assert_eq!(crc.sum(), 2_639_776_667);
    assert_ne!(SET.draw(3, 4), Rendering { seed: 2, ..SET }.draw(3, 4));
    assert_ne!(SET.draw(3, 4), SET.draw(3, 5));
}

/// Whatever is in an image lies on noise, and is not hidden by it.
#[test]
fn figures_stand_out() {
    for class in 0..100 {
        let [mut low, mut high] = [[255u8; 3], [0u8; 3]];
        for pixel in SET.draw(class, 7).as_chunks::<3>().0 {
            for channel in 0..3 {
                low[channel] = low[channel].min(pixel[channel]);
                high[channel] = high[channel].max(pixel[channel]);
            }
        }
        assert!(
            (0..3).any(|channel| high[channel] - low[channel] > 100),
            "class {class}: {low:?} to {high:?}"
        );
    }
}

#[test]
fn every_class_has_a_name_of_its_own_and_a_folder_with_its_images() {
    for classes in [2, MOST_CLASSES] {
        let set = Rendering { classes, ..SET };
        let names: BTreeSet<String> = (0..classes).map(|class| set.class_name(class)).collect();
        assert_eq!(names.len(), classes);
    }
    let out = tempfile::tempdir().unwrap();
    let set = Rendering { classes: 3, per_class: 2, size: 12, seed: 9 };
    render(&set, out.path(), || ()).unwrap();
    for class in 0..3 {
        let folder = out.path().join(set.class_name(class));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
        let image = image::open(folder.join("00001.png")).unwrap().to_rgb8();
        assert_eq!((image.dimensions(), image.into_raw()), ((12, 12), set.draw(class, 1)));
    }
    let error = render(&set, out.path(), || ()).unwrap_err().to_string();
    assert!(error.contains("is not empty"), "{error}");
    let many = Rendering { classes: MOST_CLASSES + 1, ..set };
    assert!(render(&many, out.path(), || ()).is_err());
}
