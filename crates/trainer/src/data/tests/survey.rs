//! What is found in somebody's folder of images.

use crate::data::{Dataset, ImageData, Survey};
use image::{Rgb, RgbImage};
use std::{collections::BTreeSet, fs, path::Path};

/// Images of one colour each, `count` of every class.
fn images(root: &Path, classes: &[(&str, [u8; 3])], count: usize) {
    for (class, color) in classes {
        fs::create_dir_all(root.join(class)).unwrap();
        for number in 0..count {
            let name = format!("{class}/{number}.png");
            RgbImage::from_pixel(4 + number as u32, 3, Rgb(*color)).save(root.join(name)).unwrap();
        }
    }
}

const TWO: [(&str, [u8; 3]); 2] = [("cat", [10, 20, 30]), ("dog", [50, 40, 70])];

fn paths(list: &str) -> BTreeSet<String> {
    list.lines().map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect()
}

#[test]
fn classes_are_split_alike_and_every_image_is_on_one_side() {
    let root = tempfile::tempdir().unwrap();
    images(root.path(), &TWO, 20);
    let look =
        |seed| Survey::new(root.path(), (Some(0.25), seed), true, |files| assert_eq!(files, 40)).unwrap();
    let survey = look(1);
    assert_eq!((survey.classes, &survey.names[..]), (2, &["cat".to_owned(), "dog".to_owned()][..]));
    assert_eq!((survey.train.1, survey.validation.1), (30, 10));
    for label in [" 0", " 1"] {
        let count = |list: &str| list.lines().filter(|line| line.ends_with(label)).count();
        assert_eq!((count(&survey.train.0), count(&survey.validation.0)), (15, 5));
    }
    let (train, held) = (paths(&survey.train.0), paths(&survey.validation.0));
    assert!(train.is_disjoint(&held) && train.len() + held.len() == 40);
    assert!(train.contains("cat/0.png") || held.contains("cat/0.png"));
    assert_eq!(look(1), survey);
    assert_ne!(look(2).validation, survey.validation);
    // Both lists are sets of images again, with the classes' names.
    fs::write(root.path().join("list"), &survey.train.0).unwrap();
    let set = ImageData::open_list(&root.path().join("list"), root.path(), true).unwrap();
    assert_eq!((set.facts().len, set.class_names()), (30, survey.names));
}

/// Of pixels, not of images, in the order blue, green, red.
#[test]
fn mean_and_deviation_are_those_of_the_pixels_to_train_with() {
    let root = tempfile::tempdir().unwrap();
    images(root.path(), &TWO, 1);
    let larger = RgbImage::from_pixel(4, 9, Rgb([50, 40, 70]));
    larger.save(root.path().join("dog/0.png")).unwrap();
    let survey = Survey::new(root.path(), (Some(0.0), 1), true, |_| ()).unwrap();
    assert_eq!((survey.train.1, survey.validation.1), (2, 0));
    // A quarter of the pixels are a cat's.
    assert_eq!(survey.mean, [60.0, 35.0, 40.0]);
    let expected = [40.0, 20.0, 40.0f64].map(|step| (step * step * 3.0 / 16.0).sqrt());
    let is_close = survey.std.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-9);
    assert!(is_close, "{:?}, {expected:?}", survey.std);
}

#[test]
fn a_folder_for_validation_is_used_and_its_classes_are_told_by_name() {
    let root = tempfile::tempdir().unwrap();
    images(&root.path().join("train"), &TWO, 4);
    images(&root.path().join("valid"), &TWO[1..], 3);
    let look = |part| Survey::new(root.path(), (part, 1), true, |_| ());
    let survey = look(None).unwrap();
    assert_eq!((survey.train.1, survey.validation.1), (8, 3));
    assert!(look(Some(0.5)).unwrap_err().to_string().contains("has a folder to validate with"));
    assert_eq!(survey.validation.0.lines().next(), Some("valid/dog/0.png 1"));
    assert_eq!(survey.own_folder, Some(root.path().join("valid")));
    images(&root.path().join("valid"), &[("owl", [1, 2, 3])], 1);
    let error = look(None).unwrap_err().to_string();
    assert!(error.contains("owl/0.png: train has no folder of this class"), "{error}");
}

#[test]
fn a_folder_of_classes_to_train_with_alone_is_split() {
    let root = tempfile::tempdir().unwrap();
    images(&root.path().join("train"), &TWO, 4);
    let survey = Survey::new(root.path(), (None, 1), true, |_| ()).unwrap();
    assert_eq!((survey.train.1, survey.validation.1), (6, 2));
    assert!(survey.train.0.starts_with("train/cat/") && survey.names == ["cat", "dog"]);
    // Photos of trains.
    let root = tempfile::tempdir().unwrap();
    images(root.path(), &[TWO[0], ("train", [1, 2, 3])], 4);
    assert_eq!(Survey::new(root.path(), (None, 1), true, |_| ()).unwrap().names, ["cat", "train"]);
}

#[cfg(unix)]
#[test]
fn a_folder_that_no_net_can_name_is_refused() {
    use std::os::unix::ffi::OsStrExt;
    let root = tempfile::tempdir().unwrap();
    let odd = root.path().join(std::ffi::OsStr::from_bytes(b"caf\xe9"));
    images(&odd, &TWO, 2);
    let error = Survey::new(&odd, (None, 1), true, |_| ()).unwrap_err().to_string();
    assert!(error.ends_with("a net cannot hold a name with such characters"), "{error}");
}

#[test]
fn what_cannot_be_read_is_left_out_by_name_or_refused() {
    let root = tempfile::tempdir().unwrap();
    images(root.path(), &TWO, 5);
    fs::write(root.path().join("cat/Thumbs.db"), "no image").unwrap();
    let whole = fs::read(root.path().join("dog/1.png")).unwrap();
    fs::write(root.path().join("dog/1.png"), &whole[..whole.len() / 2]).unwrap();
    let look = |strict| Survey::new(root.path(), (Some(0.2), 1), strict, |_| ());
    let survey = look(false).unwrap();
    assert_eq!(survey.train.1 + survey.validation.1, 9);
    assert_eq!(survey.unreadable.len(), 2);
    for (file, reason) in
        [("cat/Thumbs.db", "neither JPEG nor PNG"), ("dog/1.png", "the PNG image is truncated")]
    {
        assert!(
            survey.unreadable.iter().any(|said| said.contains(file) && said.contains(reason)),
            "{survey:?}"
        );
        assert!(!survey.train.0.contains(file) && !survey.validation.0.contains(file));
    }
    let error = look(true).unwrap_err().to_string();
    assert!(error.contains("Thumbs.db") && error.contains("2 of 11 files"), "{error}");
    let error = Survey::new(&root.path().join("cat"), (Some(0.2), 1), false, |_| ()).unwrap_err().to_string();
    assert!(error.contains("holds no folder per class, nor is it a list of images"), "{error}");
}

/// A net for them would have an output that nothing teaches, such as the first where labels count from 1.
#[test]
fn a_class_without_images_is_refused() {
    let root = tempfile::tempdir().unwrap();
    images(root.path(), &TWO, 2);
    let list = root.path().join("list");
    fs::create_dir(root.path().join("cow")).unwrap();
    fs::write(root.path().join("cow/0.png"), "no image").unwrap();
    let one = root.path().join("one");
    images(&one, &TWO[..1], 2);
    let refused = |source| Survey::new(source, (None, 1), false, |_| ()).unwrap_err().to_string();
    assert!(refused(&one).ends_with("one: there is only one class, cat"), "{}", refused(&one));
    let numbers = "classes are 0, 1 and so on without a gap";
    for (lines, reason) in [
        ("cat/0.png 1\ndog/0.png 2\n", format!("its labels begin at 1; {numbers}")),
        ("cat/0.png 0\ndog/0.png 2\n", format!("has no images of class 1 to train with; {numbers}")),
        ("cat/0.png 0\ncow/0.png 0\n", "there is only one class, 0".to_owned()),
        ("\n", "lists no images".to_owned()),
    ] {
        fs::write(&list, lines).unwrap();
        let error = refused(&list);
        assert!(error.ends_with(&format!("list: {reason}")), "{error}");
    }
    fs::remove_dir_all(&one).unwrap();
    // One in the middle, and the last one.
    for name in ["cow", "emu"] {
        fs::rename(root.path().join("cow"), root.path().join(name)).unwrap();
        let folder = root.path().join(name).display().to_string();
        let expected = format!(
            "{folder}: no image to train with can be used; {folder}/0.png: the file is neither JPEG nor PNG"
        );
        assert_eq!(refused(root.path()), expected);
    }
}

#[cfg(unix)]
#[test]
fn a_file_that_a_list_cannot_name_is_left_out() {
    let root = tempfile::tempdir().unwrap();
    images(root.path(), &TWO, 3);
    fs::rename(root.path().join("cat/0.png"), root.path().join("cat/a\nb.png")).unwrap();
    let survey = Survey::new(root.path(), (None, 1), false, |_| ()).unwrap();
    let [unreadable] = &survey.unreadable[..] else { panic!("{survey:?}") };
    assert!(unreadable.ends_with("a\nb.png: a list cannot hold a name with such characters"), "{unreadable}");
}

#[test]
fn a_folder_to_validate_with_that_cannot_be_read_is_refused() {
    let root = tempfile::tempdir().unwrap();
    images(&root.path().join("train"), &TWO, 3);
    fs::create_dir_all(root.path().join("val/cat")).unwrap();
    fs::write(root.path().join("val/cat/0.png"), "no image").unwrap();
    let error = Survey::new(root.path(), (None, 1), false, |_| ()).unwrap_err().to_string();
    assert!(
        error.contains("no image to validate with can be used; ") && error.ends_with("nor PNG"),
        "{error}"
    );
}

#[test]
fn a_class_that_is_not_validated_is_told() {
    let root = tempfile::tempdir().unwrap();
    images(root.path(), &TWO, 2);
    images(root.path(), &[("owl", [1, 2, 3])], 1);
    let look = |part| Survey::new(root.path(), (Some(part), 1), true, |_| ()).unwrap();
    assert_eq!(look(0.5).unvalidated, ["owl"]);
    assert_eq!(look(0.0).unvalidated, [""; 0], "nobody wants any");
}

#[test]
fn lists_without_a_folder_for_each_class_have_no_names() {
    let root = tempfile::tempdir().unwrap();
    images(root.path(), &TWO, 2);
    let names = |list: &str| {
        fs::write(root.path().join("list"), list).unwrap();
        let set = ImageData::open_list(&root.path().join("list"), root.path(), true);
        set.unwrap().class_names()
    };
    assert_eq!(names("dog/0.png 0\ncat/0.png 1\ndog/1.png 0\n"), ["dog", "cat"]);
    assert_eq!(names("dog/0.png 0\ncat/0.png 1\ncat/1.png 0\n"), [""; 0], "two folders of one class");
    assert_eq!(names("dog/0.png 0\ndog/1.png 1\n"), [""; 0], "one folder of two classes");
    assert_eq!(names("dog/0.png 0\ncat/1.png 2\n"), [""; 0], "a class without images");
}

#[test]
fn a_part_that_is_none_is_refused() {
    let root = tempfile::tempdir().unwrap();
    images(root.path(), &TWO, 2);
    for part in [f64::NAN, -0.1, 1.5] {
        let error = Survey::new(root.path(), (Some(part), 1), true, |_| ()).unwrap_err().to_string();
        assert!(error.ends_with(": the part to validate with is not from 0 to 1"), "{error}");
    }
}
