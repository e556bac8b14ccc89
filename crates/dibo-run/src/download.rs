//! `dibo data get`: from the Parquet files of the Hugging Face hub to the official IDX files, which are put
//! in place only if every digest is right.
use anyhow::{Context, Result, bail, ensure};
use dibo::data::{FILES, md5_hex};
use dibo_report::results::write_file;
use parquet::file::reader::{ChunkReader, FileReader, SerializedFileReader};
use parquet::record::RowAccessor;
use std::path::Path;

/// Where a data set lies on the hub: the owner and name of the repository, the files of training and test
/// samples.
#[cfg(feature = "download")]
pub struct Source {
    /// Owner of the repository.
    pub owner: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Training and test samples, as Parquet files with PNG images.
    pub files: [&'static str; 2],
}

/// The hub's copy of a published set. PNG loses nothing and the order is that of the official files, so their
/// digests hold for what is unpacked here.
#[cfg(feature = "download")]
pub fn source(official: dibo::data::Official) -> Source {
    match official {
        dibo::data::Official::Mnist => Source {
            owner: "ylecun",
            name: "mnist",
            files: ["mnist/train-00000-of-00001.parquet", "mnist/test-00000-of-00001.parquet"],
        },
        dibo::data::Official::FashionMnist => Source {
            owner: "zalando-datasets",
            name: "fashion_mnist",
            files: [
                "fashion_mnist/train-00000-of-00001.parquet",
                "fashion_mnist/test-00000-of-00001.parquet",
            ],
        },
    }
}

/// Downloads, converts, checks and installs; `endpoint` is another server than the hub (else `HF_ENDPOINT`,
/// else the hub).
#[cfg(feature = "download")]
pub fn fetch(source: &Source, endpoint: Option<&str>, digests: &[&str; 4], folder: &Path) -> Result<()> {
    let builder = hf_hub::HFClient::builder()
        .cache_enabled(false)
        .user_agent(concat!("dibo/", env!("CARGO_PKG_VERSION")));
    let builder = endpoint.into_iter().fold(builder, |b, e| b.endpoint(e));
    let hub = builder.build_sync().context("cannot start the client of the Hugging Face hub")?;
    let repository = hub.dataset(source.owner, source.name);
    let mut files = Vec::new();
    for file in source.files {
        println!("downloading {}/{}: {file}", source.owner, source.name);
        let bytes = repository.download_file_to_bytes().filename(file).send();
        files.extend(
            convert(bytes.with_context(|| format!("cannot download {file}"))?)
                .with_context(|| file.to_string())?,
        );
    }
    let files: [Vec<u8>; 4] =
        files.try_into().map_err(|_| anyhow::anyhow!("two files a part are expected"))?;
    install(&files, digests, folder)
}

/// Image and label file (IDX) of a Parquet file with the columns `image` (a group with the bytes of a PNG)
/// and `label`.
pub fn convert(parquet: impl ChunkReader + 'static) -> Result<[Vec<u8>; 2]> {
    let reader = SerializedFileReader::new(parquet).context("not a Parquet file")?;
    let (mut pixels, mut labels, mut size) = (Vec::new(), Vec::new(), None);
    for (number, row) in reader.get_row_iter(None).context("cannot read the rows")?.enumerate() {
        let row = row.with_context(|| format!("row {number}"))?;
        let names: Vec<&String> = row.get_column_iter().map(|(name, _)| name).collect();
        let column = |name: &str| {
            names.iter().position(|n| *n == name).with_context(|| format!("there is no column '{name}'"))
        };
        let group = row.get_group(column("image")?).context("column 'image' is no group")?;
        let place = group
            .get_column_iter()
            .position(|(name, _)| name == "bytes")
            .context("column 'image' has no 'bytes'")?;
        let bytes = group.get_bytes(place).with_context(|| format!("row {number} has no image"))?;
        let found = unpack(bytes.data(), &mut pixels).with_context(|| format!("image of row {number}"))?;
        ensure!(
            *size.get_or_insert(found) == found,
            "image of row {number} is {} × {} pixels, others are not",
            found.0,
            found.1
        );
        let label = row.get_long(column("label")?).with_context(|| format!("row {number} has no label"))?;
        labels.push(
            u8::try_from(label)
                .ok()
                .filter(|l| *l < 10)
                .with_context(|| format!("label {label} of row {number}; labels are 0 to 9"))?,
        );
    }
    let Some((width, height)) = size else { bail!("there are no rows") };
    let header = |words: &[u32]| words.iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<u8>>();
    let count = labels.len() as u32;
    Ok([
        [header(&[0x0803, count, height, width]), pixels].concat(),
        [header(&[0x0801, count]), labels].concat(),
    ])
}

/// Adds the pixels of a PNG in shades of grey; gives width and height.
fn unpack(bytes: &[u8], pixels: &mut Vec<u8>) -> Result<(u32, u32)> {
    let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().context("not a PNG")?;
    let kind = reader.output_color_type();
    ensure!(
        kind == (png::ColorType::Grayscale, png::BitDepth::Eight),
        "{kind:?}; 8-bit shades of grey are expected"
    );
    let size = reader.output_buffer_size().filter(|s| *s <= 1 << 20).context("too large")?;
    let from = pixels.len();
    pixels.resize(from + size, 0);
    let info = reader.next_frame(&mut pixels[from..]).context("damaged PNG")?;
    Ok((info.width, info.height))
}

/// Puts the four files into a folder, but only if all digests are right: else nothing is written.
pub fn install(files: &[Vec<u8>; 4], digests: &[&str; 4], folder: &Path) -> Result<()> {
    for ((bytes, right), name) in files.iter().zip(digests).zip(FILES) {
        let found = md5_hex(bytes);
        ensure!(
            found == *right,
            "{name} as downloaded has the MD5 digest {found}, the official file has {right}; nothing was kept"
        );
    }
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    FILES.iter().zip(files).try_for_each(|(name, bytes)| write_file(&folder.join(name), bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
    use parquet::file::{properties::WriterProperties, writer::SerializedFileWriter};
    use parquet::schema::parser::parse_message_type;
    use std::sync::Arc;

    /// Ten shipped samples as IDX files: those of MNIST's test set.
    fn shipped() -> [Vec<u8>; 2] {
        let (_, test) = crate::data::load("mnist-2500").unwrap();
        let header = |words: &[u32]| words.iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<u8>>();
        let pixels = (0..10).flat_map(|i| test.image(i).to_vec()).collect();
        [
            [header(&[0x0803, 10, 28, 28]), pixels].concat(),
            [header(&[0x0801, 10]), test.labels()[..10].to_vec()].concat(),
        ]
    }

    fn png(pixels: &[u8], kind: png::ColorType) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, 28, 28);
        encoder.set_color(kind);
        encoder.write_header().unwrap().write_image_data(pixels).unwrap();
        bytes
    }

    /// A Parquet file as the hub has it.
    fn parquet(images: &[Vec<u8>], labels: &[i64]) -> std::fs::File {
        let schema = "message m { optional group image { optional binary bytes; optional binary path \
            (UTF8); } optional int64 label; }";
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let mut file = tempfile::tempfile().unwrap();
        let mut writer =
            SerializedFileWriter::new(&mut file, schema, Arc::new(WriterProperties::builder().build()))
                .unwrap();
        let mut group = writer.next_row_group().unwrap();
        let levels = |level: i16| vec![level; labels.len()];
        let mut column = group.next_column().unwrap().unwrap();
        let bytes: Vec<ByteArray> = images.iter().map(|i| i.clone().into()).collect();
        column.typed::<ByteArrayType>().write_batch(&bytes, Some(&levels(2)), None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<ByteArrayType>().write_batch(&[], Some(&levels(1)), None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int64Type>().write_batch(labels, Some(&levels(1)), None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
        writer.close().unwrap();
        file
    }

    fn good() -> (Vec<Vec<u8>>, Vec<i64>) {
        let [images, labels] = shipped();
        let images = images[16..].chunks(784).map(|p| png(p, png::ColorType::Grayscale)).collect();
        (images, labels[8..].iter().map(|l| i64::from(*l)).collect())
    }

    #[test]
    fn parquet_becomes_the_same_idx() {
        let (images, labels) = good();
        assert_eq!(convert(parquet(&images, &labels)).unwrap(), shipped());
        let says = |images: &[Vec<u8>], labels: &[i64], what: &str| {
            let error = format!("{:#}", convert(parquet(images, labels)).unwrap_err());
            assert!(error.contains(what), "{error}");
        };
        says(&images, &[vec![10], labels[1..].to_vec()].concat(), "label 10 of row 0");
        says(&[vec![images[0][..40].to_vec()], images[1..].to_vec()].concat(), &labels, "image of row 0");
        says(
            &[vec![png(&[7; 784 * 3], png::ColorType::Rgb)], images[1..].to_vec()].concat(),
            &labels,
            "8-bit shades of grey",
        );
        says(&[], &[], "no rows");
        let mut text = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut text, b"certainly not").unwrap();
        assert!(format!("{:#}", convert(text).unwrap_err()).contains("not a Parquet file"));
    }

    #[test]
    fn a_wrong_digest_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let into = folder.path().join("mnist");
        let [images, labels] = shipped();
        let files = [images.clone(), labels.clone(), images, labels];
        let right: [String; 4] = files.each_ref().map(|f| md5_hex(f));
        let right = right.each_ref().map(String::as_str);
        for wrong in 0..4 {
            let mut digests = right;
            digests[wrong] = "0123456789abcdef0123456789abcdef";
            let error = install(&files, &digests, &into).unwrap_err().to_string();
            assert!(error.contains(FILES[wrong]) && error.contains("nothing was kept"), "{error}");
            assert!(!into.exists());
        }
        install(&files, &right, &into).unwrap();
        assert!(
            FILES.iter().zip(&files).all(|(name, bytes)| std::fs::read(into.join(name)).unwrap() == *bytes)
        );
    }

    /// A hub on this machine that knows two files.
    #[cfg(feature = "download")]
    fn hub(files: [Vec<u8>; 2]) -> String {
        use std::io::{BufRead, BufReader, Write};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for stream in listener.incoming().filter_map(Result::ok) {
                let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
                let first = lines.next().unwrap_or_default();
                lines.take_while(|line| !line.is_empty()).for_each(drop);
                let found = ["/datasets/o/d/resolve/main/a.parquet", "/datasets/o/d/resolve/main/b.parquet"];
                let found = found.iter().position(|path| first.split(' ').nth(1) == Some(path));
                let (status, body) = found.map_or(("404 Not Found", &[][..]), |i| ("200 OK", &files[i][..]));
                let head = format!(
                    "HTTP/1.1 {status}\r\nContent-Length: {}\r\nETag: \"1\"\r\nConnection: close\r\n\r\n",
                    body.len()
                );
                let _ = (&stream).write_all(head.as_bytes());
                if first.starts_with("GET") {
                    let _ = (&stream).write_all(body);
                }
            }
        });
        address
    }

    #[cfg(feature = "download")]
    #[test]
    fn a_download_is_checked_and_put_in_place() {
        use std::io::{Read, Seek};
        let (images, labels) = good();
        let bytes = || {
            let mut file = parquet(&images, &labels);
            let mut bytes = Vec::new();
            file.rewind().unwrap();
            file.read_to_end(&mut bytes).unwrap();
            bytes
        };
        let address = hub([bytes(), bytes()]);
        let folder = tempfile::tempdir().unwrap();
        let into = folder.path().join("mnist");
        let [i, l] = shipped().map(|f| md5_hex(&f));
        let source = Source { owner: "o", name: "d", files: ["a.parquet", "b.parquet"] };
        let error = format!("{:#}", fetch(&source, Some(&address), &[&i, &l, &i, &i], &into).unwrap_err());
        assert!(error.contains("t10k-labels") && !into.exists(), "{error}");
        fetch(&source, Some(&address), &[&i, &l, &i, &l], &into).unwrap();
        assert_eq!(std::fs::read(into.join(FILES[2])).unwrap(), shipped()[0]);
        let absent = Source { files: ["c.parquet", "b.parquet"], ..source };
        let error = format!("{:#}", fetch(&absent, Some(&address), &[&i, &l, &i, &l], &into).unwrap_err());
        assert!(error.contains("cannot download c.parquet"), "{error}");
    }
}
